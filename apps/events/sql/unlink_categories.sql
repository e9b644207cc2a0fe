-- Unlinks the sections of these seats from their categories; link_categories links them again.
DELETE FROM events_section_categories
WHERE section_id IN (SELECT section_id FROM events_seat WHERE id = ANY(%(seat_ids)s::bigint[]))
