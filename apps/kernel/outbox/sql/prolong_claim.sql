-- The claim lasts so long from now on, if the receipt is still the latest claim's and has not run out.
UPDATE outbox_outboxmessage
SET claimed_until = clock_timestamp() + %(visibility)s
WHERE id = %(id)s
  AND receipt = %(receipt)s
  AND claimed_until > clock_timestamp()
  AND done_at IS NULL
  AND dead_at IS NULL
