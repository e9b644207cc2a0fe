-- The committed entries with these ids, each with the time of the read.
SELECT id, event_id, number, in_lobby, account_id, visitor_id, status, claim_expires_at, admission_expires_at,
       busy_until, ended_at, marked, clock_timestamp()
FROM queue_queueentry
WHERE id = ANY(%(entry_ids)s::uuid[])
