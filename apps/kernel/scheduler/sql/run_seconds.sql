-- The mean seconds of a run by kind, over the latest 2,000 runs, and how many of these are of the kind.
SELECT task.kind, avg(extract(epoch FROM latest.finished_at - latest.started_at))::float8, count(*)
FROM (
    SELECT task_id, started_at, finished_at
    FROM scheduler_taskrun
    WHERE finished_at IS NOT NULL AND started_at IS NOT NULL
    ORDER BY finished_at DESC
    LIMIT 2000
) AS latest
JOIN scheduler_scheduledtask AS task ON task.id = latest.task_id
GROUP BY task.kind
