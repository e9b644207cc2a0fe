-- Tries once to become leader for the rest of the session; returns whether it succeeded.
SELECT pg_try_advisory_lock(%(key)s)
