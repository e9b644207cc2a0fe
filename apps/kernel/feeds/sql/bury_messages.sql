-- Makes dead letters of up to %(limit)s messages that have been received as often as allowed and whose last visibility
-- time-out has passed; returns their keys. The caller has locked the feed.
WITH exhausted AS MATERIALIZED (
    SELECT message.id
    FROM feeds_message AS message
    WHERE message.feed_id = %(feed)s
      AND message.state = 'ready'
      AND message.receives_left = 0
      AND message.visible_at <= (SELECT clock_timestamp())
    ORDER BY message.visible_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE
)
UPDATE feeds_message AS message
SET state = 'dead', ended_at = clock_timestamp()
FROM exhausted
WHERE message.id = exhausted.id
RETURNING message.key
