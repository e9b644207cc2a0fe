-- Returns up to %(limit)s messages that can be received, those that have waited longest first, and hides them for the
-- given time. Two receivers never get the same message, and neither waits for the other (SKIP LOCKED). The index has
-- only the first unfinished message of each key, so that the number of the others does not matter.
WITH due AS MATERIALIZED (
    SELECT message.id
    FROM feeds_message AS message
    WHERE message.feed_id = %(feed)s
      AND message.state = 'ready'
      AND message.receives_left > 0
      AND message.visible_at <= (SELECT clock_timestamp())
    ORDER BY message.visible_at, message.sequence
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE feeds_message AS message
SET visible_at = clock_timestamp() + make_interval(secs => %(visibility_seconds)s),
    received_at = clock_timestamp(),
    receipt = gen_random_uuid(),
    receives = message.receives + 1,
    receives_left = message.receives_left - 1
FROM due
WHERE message.id = due.id
RETURNING
    message.sequence, message.message_id, message.key, message.body, message.sent_at, message.receives, message.receipt,
    message.visible_at
