-- Renews the claim for %(visibility)s, if the receipt is the latest claim's and that claim has not expired.
UPDATE outbox_outboxmessage
SET claimed_until = clock_timestamp() + %(visibility)s
WHERE id = %(id)s
  AND receipt = %(receipt)s
  AND claimed_until > clock_timestamp()
  AND done_at IS NULL
  AND dead_at IS NULL
