-- Starts a run that waits and whose time has come. Of several executors that try, one gets a row: the others wait for its
-- commit and then find the run started. Returns the attempt's number, its number since staff have run the run again (which
-- `earlier` records), the lost ones of those, the kind of the task, and the seconds from the run's time to its start.
UPDATE scheduler_taskrun AS run
SET state = 'running', started_at = clock_timestamp(), attempts = run.attempts + 1, executor = %(executor)s
FROM scheduler_scheduledtask AS task
WHERE task.id = run.task_id AND run.id = %(id)s AND run.state = 'picked' AND run.due_at <= clock_timestamp()
RETURNING
    run.attempts,
    run.attempts - coalesce((run.earlier -> -1 ->> 'attempts')::integer, 0),
    run.losses,
    task.kind,
    extract(epoch FROM run.started_at - run.due_at)::float8
