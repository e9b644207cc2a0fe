-- Completes the entry, which frees its slot. The caller holds the entry's lock.
UPDATE queue_queueentry
SET status = 'completed', ended_at = clock_timestamp(), busy_until = NULL
WHERE id = %(entry_id)s AND status IN ('waiting', 'ready', 'away')
