-- Hides this locked message for the given time from now on, and returns the end of it.
UPDATE feeds_message
SET visible_at = clock_timestamp() + make_interval(secs => %(visibility_seconds)s)
WHERE id = %(id)s
RETURNING visible_at
