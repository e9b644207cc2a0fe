-- Deletes up to %(limit)s of the oldest rows of the cleanup log that are past their time.
-- The rows are chosen in a CTE, which runs once: as a subquery of IN it ran again for each row of some plans, skipped
-- what had just been deleted and went beyond the limit.
WITH old AS MATERIALIZED (
    SELECT id
    FROM reservations_cleanuplog
    WHERE swept_at < (SELECT clock_timestamp() - make_interval(days => %(kept_days)s))
    ORDER BY swept_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
DELETE FROM reservations_cleanuplog WHERE id IN (SELECT id FROM old)
