-- Fixes the draw's entrants to the present entries of the lobby. The caller holds the room's lock.
UPDATE queue_draw
SET frozen_at = %(now)s
WHERE event_id = %(event_id)s AND frozen_at IS NULL
