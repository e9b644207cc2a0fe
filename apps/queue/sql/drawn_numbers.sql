-- The numbers that the draw gave these entries.
SELECT entry_id, number
FROM queue_drawnplace
WHERE entry_id = ANY(%(entry_ids)s::uuid[])
