-- The message waits for so long, and the attempt that said so does not count; only the latest claim may say so.
UPDATE outbox_outboxmessage
SET claimed_until = NULL,
    available_at = clock_timestamp() + %(wait)s,
    attempts = greatest(attempts - 1, 0),
    last_error = %(why)s
WHERE id = %(id)s AND receipt = %(receipt)s AND done_at IS NULL AND dead_at IS NULL
RETURNING id
