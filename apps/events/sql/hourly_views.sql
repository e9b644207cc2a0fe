-- The views of the last hour of each event that has any, and those of an hour on average over the seven days (UTC) before today.
SELECT recent.event_id, recent.counted, coalesce(week.counted, 0) / 168.0::float8
FROM (
    SELECT event_id, sum(counted) AS counted
    FROM events_viewminute
    WHERE minute > clock_timestamp() - interval '1 hour'
    GROUP BY event_id
) AS recent
LEFT JOIN LATERAL (
    SELECT sum(counted) AS counted
    FROM events_viewday AS day, (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS today) AS clock
    WHERE day.event_id = recent.event_id AND day.day >= clock.today - 7 AND day.day < clock.today
) AS week ON TRUE
WHERE recent.counted > 0
