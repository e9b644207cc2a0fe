-- Locks a started run for this attempt, with its task's content, and name and account of who ran it again, or else
-- scheduled the task. No row: another executor has taken it over. The lock lasts until the handler's transaction ends, and
-- shows the picker that the executor is running.
SELECT
    run.scheduled_for, task.id, task.kind, task.params, task.event_id, task.organizer_id,
    coalesce(nullif(run.asked_by, ''), task.created_by),
    CASE WHEN run.asked_by <> '' THEN run.asked_account_id ELSE task.account_id END
FROM scheduler_taskrun AS run
JOIN scheduler_scheduledtask AS task ON task.id = run.task_id
WHERE run.id = %(id)s AND run.state = 'running' AND run.attempts = %(attempt)s
FOR NO KEY UPDATE OF run
