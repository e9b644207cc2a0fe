-- Ends up to %(limit)s admissions, of one event or of all, whose time to start a reservation is over and which no live
-- reservation keeps busy, nor did %(grace_seconds)s seconds ago.
WITH lapsed AS (
    SELECT id
    FROM queue_queueentry
    WHERE status = 'ready'
      AND admission_expires_at <= clock_timestamp()
      AND (busy_until IS NULL OR busy_until <= clock_timestamp() - make_interval(secs => %(grace_seconds)s))
      AND (%(event_id)s::bigint IS NULL OR event_id = %(event_id)s)
    ORDER BY id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE queue_queueentry AS entry
SET status = 'expired', ended_at = clock_timestamp()
FROM lapsed
WHERE entry.id = lapsed.id
