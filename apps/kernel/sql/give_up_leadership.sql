-- This session leads no more, from this answer on.
SELECT pg_advisory_unlock_all() IS NOT NULL
