-- Creates missing inventory rows of the event's general-admission sections.
INSERT INTO reservations_generaladmissioninventory (section_id, event_id, capacity, blocked, taken)
SELECT id, event_id, capacity, 0, 0
FROM events_section
WHERE event_id = %(event_id)s AND kind = 'general_admission'
ON CONFLICT (section_id) DO NOTHING
