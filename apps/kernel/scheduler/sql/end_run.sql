-- Ends an attempt, if it is still the latest one: in this state, or waiting again for %(retry_in)s. Returns the task, the
-- minute, and the seconds since the start.
UPDATE scheduler_taskrun AS run
SET state = %(state)s,
    finished_at = CASE WHEN %(state)s IN ('succeeded', 'failed') THEN clock_timestamp() END,
    due_at = CASE WHEN %(state)s = 'picked' THEN clock_timestamp() + %(retry_in)s ELSE run.due_at END,
    handed_at = NULL,
    result = %(result)s,
    error = %(error)s,
    losses = run.losses + %(lost)s
WHERE run.id = %(id)s AND run.state = 'running' AND run.attempts = %(attempt)s
RETURNING run.task_id, run.scheduled_for, extract(epoch FROM clock_timestamp() - run.started_at)::float8
