-- Completes these entries, which frees their slots. The caller holds their locks.
UPDATE queue_queueentry
SET status = 'completed', ended_at = clock_timestamp(), busy_until = NULL
WHERE id = ANY(%(entry_ids)s::uuid[]) AND status IN ('waiting', 'ready', 'away')
