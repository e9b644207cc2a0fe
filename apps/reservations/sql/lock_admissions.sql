-- Takes the advisory lock of each of these queue entries in id order; waits for other holders of a lock.
SELECT entry_id, pg_advisory_xact_lock(hashtextextended(entry_id::text, 0)) IS NOT NULL
FROM (SELECT entry_id FROM unnest(%(entry_ids)s::uuid[]) AS asked (entry_id) ORDER BY entry_id) AS sorted
