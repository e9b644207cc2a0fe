-- Locks the feed and returns its count of deleted messages whose rows are kept, and whether it is deleted itself.
SELECT deleted_count, deleted_at IS NOT NULL
FROM feeds_feed
WHERE id = %(feed)s
FOR NO KEY UPDATE
