-- Releases this session's leadership.
SELECT pg_advisory_unlock_all() IS NOT NULL
