-- How many seats of each section stand how.
SELECT section_id, status, count(*)
FROM reservations_seatinventory
WHERE section_id = ANY(%(section_ids)s::bigint[])
GROUP BY section_id, status
