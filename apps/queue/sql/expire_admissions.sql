-- Ends up to %(limit)s admissions, of one event or of all, whose time is over and whose slot no live reservation has
-- occupied for %(grace_seconds)s seconds. Only overdue ones are read, from the front of the index of deadlines. They
-- are then locked in id order and checked again under the lock.
WITH overdue AS MATERIALIZED (
    SELECT id
    FROM queue_queueentry
    WHERE status = 'ready'
      AND admission_expires_at <= (SELECT clock_timestamp())
      AND (busy_until IS NULL OR busy_until <= clock_timestamp() - make_interval(secs => %(grace_seconds)s))
      AND (%(event_id)s::bigint IS NULL OR event_id = %(event_id)s)
    ORDER BY admission_expires_at
    LIMIT %(limit)s
), lapsed AS (
    SELECT id
    FROM queue_queueentry
    WHERE id = ANY (ARRAY(SELECT id FROM overdue))
      AND status = 'ready'
      AND admission_expires_at <= clock_timestamp()
      AND (busy_until IS NULL OR busy_until <= clock_timestamp() - make_interval(secs => %(grace_seconds)s))
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE queue_queueentry AS entry
SET status = 'expired', ended_at = clock_timestamp()
FROM lapsed
WHERE entry.id = lapsed.id
