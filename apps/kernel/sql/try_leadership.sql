-- Tries to become leader, until the session ends; returns whether it did.
SELECT pg_try_advisory_lock(%(key)s)
