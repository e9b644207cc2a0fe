-- Those of the given challenges and delays that an entry of this event has used up. The caller holds the room's lock,
-- under which all entries are inserted.
SELECT work
FROM queue_queueentry
WHERE event_id = %(event_id)s AND work = ANY(%(works)s::bytea[]) AND work IS NOT NULL
