-- Gives out up to %(limit)s messages of a feed key that are visible, oldest first: until then they are nobody else's.
-- SKIP LOCKED: two who receive with one key never wait for one another.
WITH due AS (
    SELECT id
    FROM orders_feedmessage
    WHERE feed_key_id = %(key)s AND deleted_at IS NULL AND visible_at <= (SELECT clock_timestamp())
    ORDER BY visible_at, id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE orders_feedmessage AS given
SET visible_at = clock_timestamp() + %(visibility)s, receipt = gen_random_uuid(), attempts = given.attempts + 1
FROM due
WHERE given.id = due.id
RETURNING given.id, given.message_id, given.receipt
