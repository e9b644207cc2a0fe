-- Ends an attempt, if it is still the latest one: in this state, or waiting again for %(retry_in)s. The run of a task that
-- was disabled meanwhile does not wait again: it is canceled. The task's row is locked, after the run's, so that this and a
-- cancellation see each other. Returns the task, the minute, the state, the seconds since the start, and whether the task is
-- recurring.
WITH ending AS MATERIALIZED (
    SELECT
        run.id,
        task.cron,
        CASE WHEN %(state)s = 'picked' AND NOT task.enabled THEN 'canceled' ELSE %(state)s END AS state
    FROM scheduler_taskrun AS run
    JOIN scheduler_scheduledtask AS task ON task.id = run.task_id
    WHERE run.id = %(id)s AND run.state = 'running' AND run.attempts = %(attempt)s
    FOR NO KEY UPDATE OF run, task
)
UPDATE scheduler_taskrun AS run
SET state = ending.state,
    finished_at = CASE WHEN ending.state IN ('succeeded', 'failed') THEN clock_timestamp() END,
    due_at = CASE WHEN ending.state = 'picked' THEN clock_timestamp() + %(retry_in)s ELSE run.due_at END,
    turn = NULL,
    result = %(result)s,
    error = %(error)s,
    losses = run.losses + %(lost)s
FROM ending
WHERE run.id = ending.id
RETURNING
    run.task_id,
    run.scheduled_for,
    run.state,
    extract(epoch FROM clock_timestamp() - run.started_at)::float8,
    ending.cron <> ''
