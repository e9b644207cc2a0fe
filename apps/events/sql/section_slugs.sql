-- The sections of these events and what each is called, in the order of the house.
SELECT event_id, id, slug
FROM events_section
WHERE event_id = ANY(%(event_ids)s::bigint[])
ORDER BY event_id, position, id
