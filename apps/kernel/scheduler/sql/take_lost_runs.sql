-- Ends up to %(limit)s attempts whose executor is lost: they began %(grace)s ago or earlier, and no transaction has their
-- row locked, as an executor has it while its handler runs. Nothing of such an attempt was committed, so the run waits
-- again; after %(losses_max)s lost executors it has failed, and if its task was disabled meanwhile it is canceled. A run
-- whose task is being changed is left for the next round. Returns the runs, with their tasks, minutes and states.
WITH lost AS MATERIALIZED (
    SELECT
        run.id,
        CASE
            WHEN run.losses + 1 >= %(losses_max)s THEN 'failed'
            WHEN task.enabled THEN 'picked'
            ELSE 'canceled'
        END AS state
    FROM scheduler_taskrun AS run
    JOIN scheduler_scheduledtask AS task ON task.id = run.task_id
    WHERE run.state = 'running' AND run.started_at <= (SELECT clock_timestamp()) - %(grace)s
    ORDER BY run.started_at, run.id
    LIMIT %(limit)s
    FOR NO KEY UPDATE OF run, task SKIP LOCKED
)
UPDATE scheduler_taskrun AS run
SET state = lost.state,
    finished_at = CASE WHEN lost.state = 'failed' THEN clock_timestamp() END,
    losses = run.losses + 1,
    turn = NULL,
    error = %(error)s
FROM lost
WHERE run.id = lost.id
RETURNING run.id, run.task_id, run.scheduled_for, run.state
