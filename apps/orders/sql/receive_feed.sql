-- Return up to %(limit)s visible messages of a feed key, oldest first, and hide them for %(visibility)s. Because of
-- SKIP LOCKED, two receivers with one key never wait for each other.
WITH due AS (
    SELECT id
    FROM orders_feedmessage
    WHERE feed_key_id = %(key)s AND deleted_at IS NULL AND visible_at <= (SELECT clock_timestamp())
    ORDER BY visible_at, id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE orders_feedmessage AS received
SET visible_at = clock_timestamp() + %(visibility)s, receipt = gen_random_uuid(), attempts = received.attempts + 1
FROM due
WHERE received.id = due.id
RETURNING received.id, received.message_id, received.receipt
