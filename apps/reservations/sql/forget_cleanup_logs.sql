-- Deletes up to %(limit)s of the oldest rows of the cleanup log that are past their time.
-- The CTE runs once. As a subquery of IN, some plans run it again for each row: it then skips the rows just deleted, and
-- the statement deletes more rows than the limit.
WITH old AS MATERIALIZED (
    SELECT id
    FROM reservations_cleanuplog
    WHERE swept_at < (SELECT clock_timestamp() - make_interval(days => %(kept_days)s))
    ORDER BY swept_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
DELETE FROM reservations_cleanuplog WHERE id IN (SELECT id FROM old)
