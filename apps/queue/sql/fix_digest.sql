-- Stores the entrants' digest; a second call changes nothing.
UPDATE queue_draw
SET digest = %(digest)s, digest_at = clock_timestamp()
WHERE event_id = %(event_id)s AND digest IS NULL
