-- The consecutive faults of each provider that has failed, and whether it is paused or being tried after a pause.
SELECT provider, faults_count, rests_until IS NOT NULL
FROM orders_providerstanding
