-- Removes the marks of changes that every process has noticed long ago.
DELETE FROM kernel_pagechange WHERE at < clock_timestamp() - make_interval(secs => %(kept_seconds)s)
