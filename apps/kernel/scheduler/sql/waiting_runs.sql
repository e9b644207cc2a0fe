-- The runs that executors can start now (start_next_run.sql), and the seconds for which the oldest of them has waited.
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(run.due_at)), 0)::float8
FROM scheduler_taskrun AS run
WHERE run.state = 'picked'
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
