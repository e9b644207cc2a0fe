-- Ends the claims of these messages without a trace: they are due again as if they had not been claimed, so that new
-- messages are handled in lists again. The claim of a message that is older than %(lost_max)s counts: a message that
-- ends the database's sessions itself is then handled alone, and given up in the end. Locked and found as by
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
    attempts = message.attempts - (message.created_at > clock_timestamp() - %(lost_max)s)::int
FROM mine
WHERE message.id = mine.id
RETURNING message.id
