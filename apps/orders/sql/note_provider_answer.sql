-- Reset a provider's faults after a response.
UPDATE orders_providerstanding
SET faults_count = 0, rests_until = NULL, tried_until = NULL, changed_at = clock_timestamp()
WHERE provider = %(provider)s
