-- Locks the organizer's feed of this name and returns its id, next sequence number, counts of messages and bytes,
-- retention in seconds and most receives.
SELECT id, next_sequence, message_count, byte_count, retention_seconds, receives_max
FROM feeds_feed
WHERE organizer_id = %(organizer_id)s AND name = %(name)s AND deleted_at IS NULL
FOR NO KEY UPDATE
