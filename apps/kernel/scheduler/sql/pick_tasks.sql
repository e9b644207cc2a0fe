-- Picks up to %(limit)s tasks that are due within %(ahead)s, in the order of their minutes: inserts the run of each task's
-- minute and marks the task, which is then no longer due. Concurrent pickers never wait for each other (SKIP LOCKED), and
-- the unique constraint on task and minute refuses a second run. A run that was canceled before its minute is picked
-- again. A task that has a run under way is left for a later round: the insertion could wait for that run's lock, and so
-- delay all other tasks. Returns for each task its minute and whether it has a run to wait for.
WITH due AS MATERIALIZED (
    SELECT task.id, task.next_run_at, task.event_id, coalesce(task.organizer_id, 0) AS organizer_id
    FROM scheduler_scheduledtask AS task
    WHERE task.next_run_at <= (SELECT clock_timestamp()) + %(ahead)s
      AND NOT EXISTS (SELECT FROM scheduler_taskrun AS run WHERE run.task_id = task.id AND run.state = 'running')
    ORDER BY task.next_run_at, task.id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
),
picked AS (
    INSERT INTO scheduler_taskrun AS run (
        task_id, event_id, organizer_id, scheduled_for, due_at, state, picked_at, attempts, losses, executor, result, error,
        asked_by, earlier
    )
    SELECT
        due.id, due.event_id, due.organizer_id, due.next_run_at, due.next_run_at, 'picked', clock_timestamp(), 0, 0, '', '',
        '', '', '[]'
    FROM due
    ORDER BY due.id
    ON CONFLICT (task_id, scheduled_for) DO UPDATE
    SET state = 'picked', due_at = excluded.due_at, picked_at = excluded.picked_at
    WHERE run.state = 'canceled'
    RETURNING run.task_id
)
UPDATE scheduler_scheduledtask AS task
SET next_run_at = NULL
FROM due
WHERE task.id = due.id
RETURNING task.id, due.next_run_at, task.id IN (SELECT picked.task_id FROM picked)
