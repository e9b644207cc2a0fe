-- Makes the first unfinished message of each of these keys ready. The caller has locked the feed, and has ended messages
-- of these keys in an earlier statement.
UPDATE feeds_message AS message
SET state = 'ready'
FROM unnest(%(keys)s::text[]) AS given (key)
CROSS JOIN LATERAL (
    SELECT first.id
    FROM feeds_message AS first
    WHERE first.feed_id = %(feed)s AND first.key = given.key AND first.state IN ('ready', 'behind')
    ORDER BY first.sequence
    LIMIT 1
) AS head
WHERE message.id = head.id AND message.state = 'behind'
