-- Deletes up to %(limit)s unfinished messages of the feed that have expired, or any if the feed is deleted; returns their
-- keys, sizes in bytes, and whether each was a dead letter. The caller has locked the feed.
WITH old AS MATERIALIZED (
    SELECT message.id
    FROM feeds_message AS message
    WHERE message.feed_id = %(feed)s
      AND message.state <> 'deleted'
      AND (%(all)s::boolean OR message.expires_at <= (SELECT clock_timestamp()))
    ORDER BY message.expires_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE
)
DELETE FROM feeds_message AS message
USING old
WHERE message.id = old.id
RETURNING message.key, octet_length(message.body), message.state = 'dead'
