-- Starts the next run: the first that waits, in the order of turns, and that nothing precedes. Of its task no other run may
-- be running. Of its event no run of an earlier minute may wait or be running, and no task may wait to be picked for one:
-- so the runs of an event take effect in the order of their minutes. What precedes a run is in each snapshot until it has
-- ended, since executors and pickers take it from one of these states to the next in one transaction. Of several executors
-- each starts another run: they pass over what one of them is starting (SKIP LOCKED). Only runs that wait or are running
-- have a turn. The condition says "not running", since with "picked" PostgreSQL may read and sort all runs that are due.
-- So it may with NOT EXISTS for the runs of the event; each minimum is one look at an index. Runs of the kinds in
-- %(without)s are passed over. Returns the run, the attempt's
-- number, its number since staff have run the run again (which `earlier` records), the lost ones of those, the kind of the
-- task, and the seconds from the run's time to its start.
WITH next AS MATERIALIZED (
    SELECT run.id
    FROM scheduler_taskrun AS run
    WHERE run.turn IS NOT NULL
      AND run.state <> 'running'
      AND NOT EXISTS (
          SELECT FROM scheduler_taskrun AS other WHERE other.task_id = run.task_id AND other.state = 'running'
      )
      AND run.scheduled_for <= least(
          run.scheduled_for,
          (
              SELECT min(earlier.scheduled_for)
              FROM scheduler_taskrun AS earlier
              WHERE earlier.event_id = run.event_id
                AND earlier.scheduled_for < run.scheduled_for
                AND earlier.state IN ('picked', 'running')
          ),
          (
              SELECT min(task.next_run_at)
              FROM scheduler_scheduledtask AS task
              WHERE task.event_id = run.event_id AND task.next_run_at < run.scheduled_for
          )
      )
      AND (SELECT task.kind FROM scheduler_scheduledtask AS task WHERE task.id = run.task_id) <> ALL(%(without)s::text[])
    ORDER BY run.turn, run.due_at, run.id
    LIMIT 1
    FOR NO KEY UPDATE OF run SKIP LOCKED
)
UPDATE scheduler_taskrun AS run
SET state = 'running', started_at = clock_timestamp(), attempts = run.attempts + 1, executor = %(executor)s
FROM next, scheduler_scheduledtask AS task
WHERE run.id = next.id AND task.id = run.task_id
RETURNING
    run.id,
    run.attempts,
    run.attempts - coalesce((run.earlier -> -1 ->> 'attempts')::integer, 0),
    run.losses,
    task.kind,
    extract(epoch FROM run.started_at - run.due_at)::float8
