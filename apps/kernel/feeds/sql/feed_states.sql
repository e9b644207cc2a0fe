-- Returns the organizer's feeds by name, or the one of the given name: name, retention in seconds, most receives, counts
-- of messages, bytes and dead letters, the seconds for which the oldest message that can be received has been
-- waiting, and the time of creation.
SELECT
    feed.name, feed.retention_seconds, feed.receives_max, feed.message_count, feed.byte_count, feed.dead_count,
    coalesce(extract(epoch FROM clock_timestamp() - oldest.visible_at), 0)::float8, feed.created_at
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
WHERE feed.organizer_id = %(organizer_id)s
  AND feed.deleted_at IS NULL
  AND (%(name)s::text IS NULL OR feed.name = %(name)s::text)
ORDER BY feed.name
