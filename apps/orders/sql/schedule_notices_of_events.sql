-- The notices of these events' changes of date, oldest first, each with the start before the change.
SELECT notice.event_id, notice.held_until, notice.return_until, change.before ->> 'starts_at'
FROM orders_schedulenotice AS notice
JOIN events_eventchange AS change ON change.id = notice.change_id
WHERE notice.event_id = ANY(%(event_ids)s::bigint[])
ORDER BY notice.at
