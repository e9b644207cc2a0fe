-- The event and the owner of each of these entries.
SELECT id, event_id, account_id, visitor_id
FROM queue_queueentry
WHERE id = ANY(%(entry_ids)s::uuid[])
