-- Tries to become leader until the session ends; returns whether it succeeded.
SELECT pg_try_advisory_lock(%(key)s)
