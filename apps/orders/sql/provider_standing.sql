-- How a provider stands: faults in a row, the seconds until it may be called again (0: now), and whether it had rested
-- and whoever calls it is only trying. No row: it never failed.
SELECT
    faults_count,
    greatest(extract(epoch FROM rests_until - clock_timestamp()), 0)::float8 AS seconds_left,
    rests_until IS NOT NULL AS is_resting
FROM orders_providerstanding
WHERE provider = %(provider)s
