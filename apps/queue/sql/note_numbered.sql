-- Records the end of the draw: all entries have their numbers.
UPDATE queue_draw
SET numbered_at = clock_timestamp()
WHERE event_id = %(event_id)s AND numbered_at IS NULL
