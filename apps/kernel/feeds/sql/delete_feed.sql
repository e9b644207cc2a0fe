-- Deletes the row of a deleted feed that has no messages any more. The caller has locked it.
DELETE FROM feeds_feed
WHERE id = %(feed)s AND deleted_at IS NOT NULL AND NOT EXISTS (SELECT FROM feeds_message WHERE feed_id = %(feed)s)
