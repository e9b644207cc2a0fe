-- Locks up to %(limit)s dead letters of the feed, oldest first, and returns their ids and keys. The caller has locked the
-- feed.
SELECT id, key
FROM feeds_message
WHERE feed_id = %(feed)s AND state = 'dead'
ORDER BY sequence
LIMIT %(limit)s
FOR NO KEY UPDATE
