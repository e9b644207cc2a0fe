-- The draw has ended: every entrant's entry has its number.
UPDATE queue_draw
SET numbered_at = clock_timestamp()
WHERE event_id = %(event_id)s AND numbered_at IS NULL
