-- Frees the slots of up to %(limit)s entries, of one event or of all, that did not arrive within their claim time. They
-- keep their numbers. Only overdue ones are read, from the front of an index of unclaimed entries. They are then locked
-- in id order and checked again under the lock.
WITH overdue AS MATERIALIZED (
    SELECT id
    FROM queue_queueentry
    WHERE status = 'ready'
      AND admission_expires_at IS NULL
      AND claim_expires_at <= (SELECT clock_timestamp())
      AND (%(event_id)s::bigint IS NULL OR event_id = %(event_id)s)
    ORDER BY claim_expires_at
    LIMIT %(limit)s
), missing AS (
    SELECT id
    FROM queue_queueentry
    WHERE id = ANY (ARRAY(SELECT id FROM overdue))
      AND status = 'ready'
      AND admission_expires_at IS NULL
      AND claim_expires_at <= clock_timestamp()
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE queue_queueentry AS entry
SET status = 'away'
FROM missing
WHERE entry.id = missing.id
