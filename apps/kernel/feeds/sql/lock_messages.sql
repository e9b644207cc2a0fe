-- Locks the messages with these sequence numbers, in their order, and returns of each its id, sequence number, state,
-- receipt, key, size in bytes, and the seconds since its latest receive. The rows are read again after the wait for a
-- receiver, so the receipts are the latest ones.
SELECT
    id, sequence, state, receipt, key, octet_length(body), extract(epoch FROM clock_timestamp() - received_at)::float8
FROM feeds_message
WHERE feed_id = %(feed)s AND sequence = ANY(%(sequences)s::bigint[])
ORDER BY sequence
FOR NO KEY UPDATE
