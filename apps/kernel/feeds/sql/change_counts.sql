-- Adds to the feed's next sequence number and counts. The caller has locked the feed.
UPDATE feeds_feed
SET next_sequence = next_sequence + %(sequences)s,
    message_count = message_count + %(messages)s,
    byte_count = byte_count + %(bytes)s,
    dead_count = dead_count + %(dead)s,
    deleted_count = deleted_count + %(deleted)s
WHERE id = %(feed)s
