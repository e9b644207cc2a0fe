-- Marks these messages done, each if its receipt is the latest claim's: a claim that another worker replaced settles
-- nothing. They are locked in id order, so that two lists cannot deadlock. Returns the ids that were settled, with the
-- seconds since the claim and since the message was written.
WITH given AS MATERIALIZED (
    SELECT *
    FROM unnest(%(ids)s::bigint[], %(receipts)s::uuid[]) AS given (id, receipt)
),
mine AS MATERIALIZED (
    SELECT message.id
    FROM given
    JOIN outbox_outboxmessage AS message ON message.id = given.id
    WHERE message.receipt = given.receipt AND message.done_at IS NULL AND message.dead_at IS NULL
    ORDER BY message.id
    FOR NO KEY UPDATE OF message
)
UPDATE outbox_outboxmessage AS message
SET done_at = clock_timestamp(), claimed_until = NULL
FROM mine
WHERE message.id = mine.id
RETURNING
    message.id,
    extract(epoch FROM message.done_at - message.claimed_at)::float8,
    extract(epoch FROM message.done_at - message.created_at)::float8
