-- Whose these entries are, and of which event.
SELECT id, event_id, account_id, visitor_id
FROM queue_queueentry
WHERE id = ANY(%(entry_ids)s::uuid[])
