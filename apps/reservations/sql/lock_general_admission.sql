-- Locks these general-admission rows in id order, last of all locks, and returns what is left under the lock.
SELECT section_id, capacity - blocked - taken
FROM reservations_generaladmissioninventory
WHERE section_id = ANY(%(section_ids)s::bigint[])
ORDER BY section_id
FOR NO KEY UPDATE
