-- Forgets which categories are found in the sections of these seats; link_categories says it anew.
DELETE FROM events_section_categories
WHERE section_id IN (SELECT section_id FROM events_seat WHERE id = ANY(%(seat_ids)s::bigint[]))
