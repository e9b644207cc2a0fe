-- Locks these general-admission rows in id order, skipping locked ones, so that a hold is not delayed by another.
SELECT section_id, capacity - blocked - taken
FROM reservations_generaladmissioninventory
WHERE section_id = ANY(%(section_ids)s::bigint[])
ORDER BY section_id
FOR NO KEY UPDATE SKIP LOCKED
