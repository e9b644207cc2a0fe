-- The same for those of these rows that nobody else has locked: for a hold beside somebody who keeps one.
SELECT section_id, capacity - blocked - taken
FROM reservations_generaladmissioninventory
WHERE section_id = ANY(%(section_ids)s::bigint[])
ORDER BY section_id
FOR NO KEY UPDATE SKIP LOCKED
