-- Removes the oldest rows of the cleanup log that are past their time; nobody else writes to them.
DELETE FROM reservations_cleanuplog
WHERE id IN (
    SELECT id
    FROM reservations_cleanuplog
    WHERE swept_at < (SELECT clock_timestamp() - make_interval(days => %(kept_days)s))
    ORDER BY swept_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
