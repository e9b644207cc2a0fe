-- The runs that executors can start now, and the seconds for which the oldest of them has waited.
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(run.due_at)), 0)::float8
FROM scheduler_taskrun AS run
WHERE run.state = 'picked'
  AND run.turn IS NOT NULL
  AND NOT EXISTS (SELECT FROM scheduler_taskrun AS other WHERE other.task_id = run.task_id AND other.state = 'running')
