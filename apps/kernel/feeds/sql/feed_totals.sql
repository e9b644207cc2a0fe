-- Returns the counts of messages and dead letters of all feeds, and the longest wait, in seconds, of a message that can be
-- received.
SELECT
    coalesce(sum(feed.message_count), 0)::bigint,
    coalesce(sum(feed.dead_count), 0)::bigint,
    coalesce(extract(epoch FROM clock_timestamp() - min(oldest.visible_at)), 0)::float8
FROM feeds_feed AS feed
LEFT JOIN LATERAL (
    SELECT message.visible_at
    FROM feeds_message AS message
    WHERE message.feed_id = feed.id
      AND message.state = 'ready'
      AND message.receives_left > 0
      AND message.visible_at <= (SELECT clock_timestamp())
    ORDER BY message.visible_at, message.sequence
    LIMIT 1
) AS oldest ON TRUE
WHERE feed.deleted_at IS NULL
