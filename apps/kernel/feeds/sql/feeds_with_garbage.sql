-- Returns the ids of feeds with messages to bury, to expire or to forget, and of deleted feeds.
SELECT feed.id
FROM feeds_feed AS feed
WHERE feed.deleted_at IS NOT NULL
   OR feed.deleted_count > %(kept_max)s
   OR EXISTS (
       SELECT
       FROM feeds_message AS message
       WHERE message.feed_id = feed.id AND message.state <> 'deleted'
         AND message.expires_at <= (SELECT clock_timestamp())
   )
   OR EXISTS (
       SELECT
       FROM feeds_message AS message
       WHERE message.feed_id = feed.id AND message.state = 'deleted'
         AND message.ended_at <= (SELECT clock_timestamp()) - make_interval(days => %(kept_days)s)
   )
   OR EXISTS (
       SELECT
       FROM feeds_message AS message
       WHERE message.feed_id = feed.id AND message.state = 'ready' AND message.receives_left = 0
         AND message.visible_at <= (SELECT clock_timestamp())
   )
ORDER BY feed.id
