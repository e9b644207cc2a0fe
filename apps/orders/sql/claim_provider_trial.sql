-- Claim the one trial call after a provider's rest, until that call must have ended. No row updated: another caller has
-- it. Two concurrent claims conflict on the row's lock: the second re-reads the row and finds it claimed.
UPDATE orders_providerstanding
SET tried_until = clock_timestamp() + %(trial_seconds)s * interval '1 second'
WHERE provider = %(provider)s
  AND rests_until <= clock_timestamp()
  AND (tried_until IS NULL OR tried_until <= clock_timestamp())
