-- Locks, in id order, the live entries of these browsers at one event, and gives them as they are under the lock. The
-- same as lock_places for the usual crowd: half the planning, and no entry is looked up twice.
SELECT id, event_id, number, in_lobby, account_id, visitor_id, status, claim_expires_at, admission_expires_at,
       busy_until, ended_at, marked
FROM queue_queueentry
WHERE event_id = %(event_id)s
  AND visitor_id = ANY(%(visitor_ids)s::text[])
  AND account_id IS NULL
  AND status IN ('waiting', 'ready', 'away')
ORDER BY id
FOR NO KEY UPDATE
