-- Schedules the next attempt, or gives the message up after the last one; returns whether it was given up. Only the
-- latest claim may do so.
UPDATE outbox_outboxmessage
SET claimed_until = NULL,
    available_at = clock_timestamp() + %(backoff)s,
    dead_at = CASE WHEN attempts >= %(attempts_max)s THEN clock_timestamp() END,
    last_error = %(error)s
WHERE id = %(id)s AND receipt = %(receipt)s AND done_at IS NULL AND dead_at IS NULL
RETURNING dead_at IS NOT NULL
