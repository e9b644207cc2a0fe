-- Whether this session leads from now on, until it ends.
SELECT pg_try_advisory_lock(%(key)s)
