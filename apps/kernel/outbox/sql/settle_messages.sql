-- Ends the claims of these messages: marks each done or, if it is to be handled alone, due again with its count of
-- attempts. A claim that another worker replaced, whose receipt is not the latest, changes nothing. They are locked in id
-- order, so that two lists cannot deadlock, and found by their ids: coalesce() keeps the index of pending messages out,
-- which also contains those that were settled since the last vacuum. Returns the ids whose claims were ended, with the
-- seconds since the claim and since the message was written, for those that are done.
WITH given AS MATERIALIZED (
    SELECT *
    FROM unnest(%(ids)s::bigint[], %(receipts)s::uuid[], %(are_done)s::boolean[]) AS given (id, receipt, is_done)
),
mine AS MATERIALIZED (
    SELECT message.id, given.is_done
    FROM given
    JOIN outbox_outboxmessage AS message ON message.id = given.id
    WHERE message.receipt = given.receipt AND coalesce(message.done_at, message.dead_at) IS NULL
    ORDER BY message.id
    FOR NO KEY UPDATE OF message
)
UPDATE outbox_outboxmessage AS message
SET done_at = CASE WHEN mine.is_done THEN clock_timestamp() END, claimed_until = NULL
FROM mine
WHERE message.id = mine.id
RETURNING
    message.id,
    extract(epoch FROM message.done_at - message.claimed_at)::float8,
    extract(epoch FROM message.done_at - message.created_at)::float8
