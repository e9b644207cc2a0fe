-- Deletes the reports of processes that have sent none for %(kept_seconds)s seconds.
DELETE FROM kernel_signal
WHERE at <= clock_timestamp() - make_interval(secs => %(kept_seconds)s)
