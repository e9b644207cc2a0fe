-- Ends up to %(limit)s entries whose visitors did not return within %(return_seconds)s seconds of their claim time.
WITH gone AS (
    SELECT id
    FROM queue_queueentry
    WHERE status = 'away'
      AND claim_expires_at <= clock_timestamp() - make_interval(secs => %(return_seconds)s)
    ORDER BY id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE queue_queueentry AS entry
SET status = 'expired', ended_at = clock_timestamp()
FROM gone
WHERE entry.id = gone.id
