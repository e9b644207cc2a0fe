-- The message is done, if the receipt is still the latest claim's: a claim that ran out settles nothing.
UPDATE outbox_outboxmessage
SET done_at = clock_timestamp(), claimed_until = NULL
WHERE id = %(id)s AND receipt = %(receipt)s AND done_at IS NULL AND dead_at IS NULL
