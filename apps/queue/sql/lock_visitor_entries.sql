-- Locks, in id order, the live entries of these browsers at one event, and returns their state under the lock. This is
-- the usual case of lock_live_entries.sql, with half the planning and one lookup per entry.
SELECT id, event_id, number, in_lobby, account_id, visitor_id, status, claim_expires_at, admission_expires_at,
       busy_until, ended_at, marked
FROM queue_queueentry
WHERE event_id = %(event_id)s
  AND visitor_id = ANY(%(visitor_ids)s::text[])
  AND account_id IS NULL
  AND status IN ('waiting', 'review', 'ready', 'away')
ORDER BY id
FOR NO KEY UPDATE
