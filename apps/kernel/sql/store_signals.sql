-- Stores the latest measurements of one process, one row per signal. No other process writes these rows.
INSERT INTO kernel_signal (name, process, value, count, at)
SELECT measured.name, %(process)s, measured.value, measured.count, clock_timestamp()
FROM unnest(%(names)s::text[], %(values)s::float8[], %(counts)s::integer[]) AS measured (name, value, count)
ON CONFLICT (name, process) DO UPDATE
SET value = excluded.value, count = excluded.count, at = excluded.at
