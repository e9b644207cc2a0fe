-- The sections of one event or of all, with their kinds and capacities.
SELECT id, event_id, kind, capacity
FROM events_section
WHERE %(event_id)s::bigint IS NULL OR event_id = %(event_id)s
ORDER BY event_id, position, id
