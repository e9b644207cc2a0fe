-- The id and slug of each section of these events, in display order.
SELECT event_id, id, slug
FROM events_section
WHERE event_id = ANY(%(event_ids)s::bigint[])
ORDER BY event_id, position, id
