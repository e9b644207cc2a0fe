-- Returns the counts of a feed as its row has them, and then as its messages have them, of one moment: messages, bytes,
-- dead letters, rows of deleted messages, and the next sequence number (by its messages: the least possible one).
SELECT
    feed.message_count, feed.byte_count, feed.dead_count, feed.deleted_count, feed.next_sequence,
    count(*) FILTER (WHERE message.state <> 'deleted'),
    coalesce(sum(octet_length(message.body)), 0)::bigint,
    count(*) FILTER (WHERE message.state = 'dead'),
    count(*) FILTER (WHERE message.state = 'deleted'),
    coalesce(max(message.sequence), 0) + 1
FROM feeds_feed AS feed
LEFT JOIN feeds_message AS message ON message.feed_id = feed.id
WHERE feed.id = %(feed)s AND feed.deleted_at IS NULL
GROUP BY feed.id
