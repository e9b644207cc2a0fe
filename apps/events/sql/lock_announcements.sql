-- Locks the announcements of an event and returns the number of the last version.
SELECT latest
FROM events_announcementfeed
WHERE event_id = %(event_id)s::bigint
FOR NO KEY UPDATE
