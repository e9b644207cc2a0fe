-- Returns id, fingerprint and sequence number of the feed's messages with these ids. The caller has locked the feed, so
-- no other transaction is adding one of them.
SELECT message_id, fingerprint, sequence
FROM feeds_message
WHERE feed_id = %(feed)s AND message_id = ANY(%(ids)s::text[])
