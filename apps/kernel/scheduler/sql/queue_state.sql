-- Runs that are due, the age of the oldest in seconds, running ones, by how many seconds the pickers are late, and the
-- runs that failed in the last day.
SELECT
    (SELECT count(*) FROM scheduler_taskrun WHERE state = 'picked' AND due_at <= (SELECT clock_timestamp())),
    (
        SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - min(due_at)), 0), 0)::float8
        FROM scheduler_taskrun
        WHERE state = 'picked'
    ),
    (SELECT count(*) FROM scheduler_taskrun WHERE state = 'running'),
    (
        SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - min(next_run_at)), 0), 0)::float8
        FROM scheduler_scheduledtask
        WHERE next_run_at IS NOT NULL
    ),
    (
        SELECT count(*)
        FROM scheduler_taskrun
        WHERE finished_at > (SELECT clock_timestamp()) - interval '1 day' AND state = 'failed'
    )
