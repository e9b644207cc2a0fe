-- The one trial call after a provider's rest is ours, until it must have come back: no row touched means that another
-- has it. The row's own lock lets one of two through; the second re-reads it and finds it taken.
UPDATE orders_providerstanding
SET tried_until = clock_timestamp() + %(trial_seconds)s * interval '1 second'
WHERE provider = %(provider)s
  AND rests_until <= clock_timestamp()
  AND (tried_until IS NULL OR tried_until <= clock_timestamp())
