-- Like lock_announcements, but returns no row if another transaction has the lock.
SELECT latest
FROM events_announcementfeed
WHERE event_id = %(event_id)s::bigint
FOR NO KEY UPDATE SKIP LOCKED
