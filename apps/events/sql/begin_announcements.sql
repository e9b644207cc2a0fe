-- The event has a row whose lock is that of its announcements.
INSERT INTO events_announcementfeed (event_id, latest)
VALUES (%(event_id)s::bigint, 0)
ON CONFLICT (event_id) DO NOTHING
