-- Stores the beacon's value in the draw. The caller holds the draw's lock.
UPDATE queue_draw
SET beacon_value = %(value)s
WHERE event_id = %(event_id)s AND beacon_value IS NULL AND revealed_at IS NULL
