-- Locks a message and returns its id, state, receipt, key, size in bytes, and the seconds since its latest receive. The
-- row is read again after the wait for a receiver, so the receipt is the latest one.
SELECT
    id, state, receipt, key, octet_length(body), extract(epoch FROM clock_timestamp() - received_at)::float8
FROM feeds_message
WHERE feed_id = %(feed)s AND sequence = %(sequence)s
FOR NO KEY UPDATE
