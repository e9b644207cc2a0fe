-- Creates the row whose lock serializes an event's announcements, if it is missing.
INSERT INTO events_announcementfeed (event_id, latest)
VALUES (%(event_id)s::bigint, 0)
ON CONFLICT (event_id) DO NOTHING
