-- How many runs executors can start now (start_next_run.sql), up to %(limit)s, and for how many seconds the oldest of those
-- has waited. They are read in the order of their turns, from the index: to count all takes longer than to start one.
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(next.due_at)), 0)::float8
FROM (
    SELECT run.due_at
    FROM scheduler_taskrun AS run
    WHERE run.state <> 'running'
      AND run.turn IS NOT NULL
      AND NOT EXISTS (SELECT FROM scheduler_taskrun AS other WHERE other.task_id = run.task_id AND other.state = 'running')
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
    ORDER BY run.turn, run.due_at, run.id
    LIMIT %(limit)s
) AS next
