-- The numbers that these entries drew.
SELECT entry_id, number
FROM queue_drawnplace
WHERE entry_id = ANY(%(entry_ids)s::uuid[])
