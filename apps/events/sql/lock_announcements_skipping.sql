-- The same where nobody has them locked; no row where somebody is saying something.
SELECT latest
FROM events_announcementfeed
WHERE event_id = %(event_id)s::bigint
FOR NO KEY UPDATE SKIP LOCKED
