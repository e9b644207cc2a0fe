-- Links each section of the event to the categories of its seats, so that reading a section does not scan its seats.
INSERT INTO events_section_categories (section_id, category_id)
SELECT DISTINCT section_id, category_id
FROM events_seat
WHERE event_id = %(event_id)s
UNION
SELECT id, category_id
FROM events_section
WHERE event_id = %(event_id)s AND category_id IS NOT NULL
ON CONFLICT DO NOTHING
