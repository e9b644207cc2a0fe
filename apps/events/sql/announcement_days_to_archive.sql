-- Event days whose announcements can be archived, oldest first: the event has begun, and the last version of each was
-- written, before %(before)s.
SELECT version.event_id, (version.posted_at AT TIME ZONE 'UTC')::date AS day
FROM events_announcementversion AS version
JOIN events_event AS event ON event.id = version.event_id
WHERE event.starts_at < %(before)s
GROUP BY version.event_id, day
HAVING max(version.at) < %(before)s
ORDER BY day, version.event_id
LIMIT %(limit)s
