-- Tries to become the only one who decides for each of these queue entries; never waits. Gives the busy ones.
SELECT entry_id
FROM unnest(%(entry_ids)s::uuid[]) AS asked (entry_id)
WHERE NOT pg_try_advisory_xact_lock(hashtextextended(entry_id::text, 0))
