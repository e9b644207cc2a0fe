-- Locks a draw and returns its state under the lock, with the time.
SELECT statement, secret, reveal_by, digest, digest_at, beacon_value, revealed_at, seed, drawn_at, clock_timestamp()
FROM queue_draw
WHERE event_id = %(event_id)s
FOR NO KEY UPDATE
