-- Records that all numbers are drawn. The caller holds the draw's lock.
UPDATE queue_draw
SET drawn_at = clock_timestamp()
WHERE event_id = %(event_id)s AND drawn_at IS NULL
