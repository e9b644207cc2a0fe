-- Claim the one trial call after a provider's pause, until that call must have ended. If another caller has claimed it,
-- no row is updated. The second of two concurrent claims waits for the row's lock, then finds the trial claimed.
UPDATE orders_providerstanding
SET tried_until = clock_timestamp() + %(trial_seconds)s * interval '1 second'
WHERE provider = %(provider)s
  AND rests_until <= clock_timestamp()
  AND (tried_until IS NULL OR tried_until <= clock_timestamp())
