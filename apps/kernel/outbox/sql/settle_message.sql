-- Marks the message done, if the receipt is the latest claim's: a claim that another worker replaced settles nothing.
-- Returns the seconds since its claim and since it was written.
UPDATE outbox_outboxmessage
SET done_at = clock_timestamp(), claimed_until = NULL
WHERE id = %(id)s AND receipt = %(receipt)s AND done_at IS NULL AND dead_at IS NULL
RETURNING extract(epoch FROM done_at - claimed_at)::float8, extract(epoch FROM done_at - created_at)::float8
