-- The return policy of an event (nulls without one), and when the last return window closes that a new date has opened
-- and that is open at this moment: at the latest when the event starts now. One row.
SELECT policy.until_hours, policy.keeps_fees,
       (
           SELECT max(least(notice.return_until, event.starts_at))
           FROM orders_schedulenotice AS notice
           JOIN events_event AS event ON event.id = notice.event_id
           WHERE notice.event_id = %(event_id)s AND least(notice.return_until, event.starts_at) > %(at)s
              AND event.status = 'published'
       )
FROM (SELECT %(event_id)s::bigint AS event_id) AS wanted
LEFT JOIN orders_returnpolicy AS policy ON policy.event_id = wanted.event_id
