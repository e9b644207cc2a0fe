-- The same for those of these entries that nobody else has locked.
SELECT id, status, admission_expires_at, busy_until, account_id, visitor_id, event_id
FROM queue_queueentry
WHERE id = ANY(%(entry_ids)s::uuid[])
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED
