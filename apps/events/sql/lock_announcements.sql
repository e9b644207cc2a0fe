-- Locks the announcements of an event and gives the number of what was said last.
SELECT latest
FROM events_announcementfeed
WHERE event_id = %(event_id)s::bigint
FOR NO KEY UPDATE
