-- Ends the claims of these messages as if they had not been claimed: they are due at once, and new ones are handled in
-- lists. Of a message older than %(age_max)s, the claim counts as an attempt: a message that ends the database's sessions
-- itself is then handled alone, and given up in the end. Locked and found as by
-- `settle_messages.sql`. Returns the ids whose claims were ended.
WITH given AS MATERIALIZED (
    SELECT *
    FROM unnest(%(ids)s::bigint[], %(receipts)s::uuid[]) AS given (id, receipt)
),
mine AS MATERIALIZED (
    SELECT message.id
    FROM given
    JOIN outbox_outboxmessage AS message ON message.id = given.id
    WHERE message.receipt = given.receipt AND coalesce(message.done_at, message.dead_at) IS NULL
    ORDER BY message.id
    FOR NO KEY UPDATE OF message
)
UPDATE outbox_outboxmessage AS message
SET claimed_until = NULL,
    attempts = message.attempts - (message.created_at > clock_timestamp() - %(age_max)s)::int
FROM mine
WHERE message.id = mine.id
RETURNING message.id
