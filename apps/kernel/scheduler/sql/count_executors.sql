-- The executors of all workers that have reported within the given seconds.
SELECT coalesce(sum(value), 0)::float8
FROM kernel_signal
WHERE name = %(name)s AND at > (SELECT clock_timestamp()) - make_interval(secs => %(age_seconds_max)s)
