-- Ends up to %(limit)s attempts whose executor is lost: they began %(grace)s ago or earlier, and no transaction has their
-- row locked, as an executor has it while its handler runs. Nothing of such an attempt was committed, so the run waits
-- again; after %(losses_max)s lost executors it has failed. Returns the runs that failed, with their tasks and minutes.
WITH lost AS MATERIALIZED (
    SELECT run.id
    FROM scheduler_taskrun AS run
    WHERE run.state = 'running' AND run.started_at <= (SELECT clock_timestamp()) - %(grace)s
    ORDER BY run.started_at, run.id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE scheduler_taskrun AS run
SET state = CASE WHEN run.losses + 1 >= %(losses_max)s THEN 'failed' ELSE 'picked' END,
    finished_at = CASE WHEN run.losses + 1 >= %(losses_max)s THEN clock_timestamp() END,
    losses = run.losses + 1,
    handed_at = NULL,
    error = %(error)s
FROM lost
WHERE run.id = lost.id
RETURNING run.id, run.task_id, run.scheduled_for, run.state
