-- Returns those of these keys that have an unfinished message in the feed. The caller has locked the feed.
SELECT given.key
FROM unnest(%(keys)s::text[]) AS given (key)
WHERE EXISTS (
    SELECT
    FROM feeds_message AS message
    WHERE message.feed_id = %(feed)s AND message.key = given.key AND message.state IN ('ready', 'behind')
)
