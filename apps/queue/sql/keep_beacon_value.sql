-- Stores the beacon's value in the draw, with the signatures that prove it. The caller holds the draw's lock.
UPDATE queue_draw
SET beacon_value = %(value)s, beacon_signature = %(signature)s, beacon_previous_signature = %(previous)s
WHERE event_id = %(event_id)s AND beacon_value IS NULL AND revealed_at IS NULL
