-- Tries to become the only one who decides for each of these queue entries; never waits. Busy ones come back false.
SELECT entry_id, pg_try_advisory_xact_lock(hashtextextended(entry_id::text, 0))
FROM unnest(%(entry_ids)s::uuid[]) AS asked (entry_id)
