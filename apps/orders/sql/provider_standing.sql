-- A provider's consecutive faults, the seconds until it may be called again (0: now), and whether it is paused or being
-- tried after a pause. A provider that never failed has no row.
SELECT
    faults_count,
    greatest(extract(epoch FROM rests_until - clock_timestamp()), 0)::float8 AS seconds_left,
    rests_until IS NOT NULL AS is_resting
FROM orders_providerstanding
WHERE provider = %(provider)s
