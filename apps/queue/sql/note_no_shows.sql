-- Takes the slot from up to %(limit)s entries, of one event or of all, that did not come in their claim time. They keep
-- their numbers.
WITH missing AS (
    SELECT id
    FROM queue_queueentry
    WHERE status = 'ready'
      AND admission_expires_at IS NULL
      AND claim_expires_at <= clock_timestamp()
      AND (%(event_id)s::bigint IS NULL OR event_id = %(event_id)s)
    ORDER BY id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE queue_queueentry AS entry
SET status = 'away'
FROM missing
WHERE entry.id = missing.id
