-- The number of seats of each section by status.
SELECT section_id, status, count(*)
FROM reservations_seatinventory
WHERE section_id = ANY(%(section_ids)s::bigint[])
GROUP BY section_id, status
