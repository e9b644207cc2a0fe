-- Marks up to %(limit)s runs whose time has come as handed over, and returns their ids in the order of their times, with
-- the seconds for which they have waited. A run that was handed over and has not started %(again_after)s later is handed over again: the message may be lost.
WITH due AS MATERIALIZED (
    SELECT run.id
    FROM scheduler_taskrun AS run
    WHERE run.state = 'picked'
      AND run.due_at <= (SELECT clock_timestamp())
      AND (run.handed_at IS NULL OR run.handed_at <= clock_timestamp() - %(again_after)s)
    ORDER BY run.due_at, run.id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
),
marked AS (
    UPDATE scheduler_taskrun AS run
    SET handed_at = clock_timestamp()
    FROM due
    WHERE run.id = due.id
    RETURNING run.id, run.due_at, run.handed_at
)
SELECT marked.id, extract(epoch FROM marked.handed_at - marked.due_at)::float8
FROM marked
ORDER BY marked.due_at, marked.id
