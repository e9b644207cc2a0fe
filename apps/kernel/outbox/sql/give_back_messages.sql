-- Ends the claims of these messages, which are due at once. They keep their count of attempts, so that the next claim
-- has each handled alone. Only the latest claim may do so.
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
SET claimed_until = NULL
FROM mine
WHERE message.id = mine.id
