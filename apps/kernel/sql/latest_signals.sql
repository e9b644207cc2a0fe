-- The worst report of each signal in the last %(max_age_seconds)s seconds, among reports of at least
-- %(count_min)s measurements.
SELECT DISTINCT ON (name) name, value, count, process
FROM kernel_signal
WHERE at > clock_timestamp() - make_interval(secs => %(max_age_seconds)s) AND count >= %(count_min)s
ORDER BY name, value DESC
