-- The free seats or tickets of each section: the cheap count for display.
SELECT section_id, count(*)
FROM reservations_seatinventory
WHERE section_id = ANY(%(section_ids)s::bigint[]) AND status = 0
GROUP BY section_id
UNION ALL
SELECT section_id, capacity - blocked - taken
FROM reservations_generaladmissioninventory
WHERE section_id = ANY(%(section_ids)s::bigint[])
