-- Postpones the message by %(wait)s without counting the attempt. Only the latest claim may do so.
UPDATE outbox_outboxmessage
SET claimed_until = NULL,
    available_at = clock_timestamp() + %(wait)s,
    attempts = greatest(attempts - 1, 0),
    last_error = %(why)s
WHERE id = %(id)s AND receipt = %(receipt)s AND done_at IS NULL AND dead_at IS NULL
RETURNING id
