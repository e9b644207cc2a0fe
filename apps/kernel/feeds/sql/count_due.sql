-- Returns for each of these feeds, by organizer and name, how many messages can be received now, up to %(limit)s. A message
-- whose last receive has timed out counts, too: the next receive makes it a dead letter and goes on with its key.
SELECT feed.organizer_id, feed.name, due.count + exhausted.count
FROM unnest(%(organizers)s::bigint[], %(names)s::text[]) AS given (organizer_id, name)
JOIN feeds_feed AS feed
    ON feed.organizer_id = given.organizer_id AND feed.name = given.name AND feed.deleted_at IS NULL
CROSS JOIN LATERAL (
    SELECT count(*) AS count
    FROM (
        SELECT
        FROM feeds_message AS message
        WHERE message.feed_id = feed.id
          AND message.state = 'ready'
          AND message.receives_left > 0
          AND message.visible_at <= (SELECT clock_timestamp())
        LIMIT %(limit)s
    ) AS ready
) AS due
CROSS JOIN LATERAL (
    SELECT count(*) AS count
    FROM (
        SELECT
        FROM feeds_message AS message
        WHERE message.feed_id = feed.id
          AND message.state = 'ready'
          AND message.receives_left = 0
          AND message.visible_at <= (SELECT clock_timestamp())
        LIMIT 1
    ) AS ended
) AS exhausted
