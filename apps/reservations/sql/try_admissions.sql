-- Tries to take the advisory lock of each of these queue entries without waiting; returns the busy ones.
SELECT entry_id
FROM unnest(%(entry_ids)s::uuid[]) AS asked (entry_id)
WHERE NOT pg_try_advisory_xact_lock(hashtextextended(entry_id::text, 0))
