-- Locks these entries in id order and returns their state under the lock.
SELECT id, status, admission_expires_at, busy_until, account_id, visitor_id, event_id
FROM queue_queueentry
WHERE id = ANY(%(entry_ids)s::uuid[])
ORDER BY id
FOR NO KEY UPDATE
