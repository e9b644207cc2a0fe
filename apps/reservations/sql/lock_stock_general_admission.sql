-- Locks one general-admission row, last of all locks, and returns its counts.
SELECT capacity, blocked, house, taken
FROM reservations_generaladmissioninventory
WHERE section_id = %(section_id)s
FOR NO KEY UPDATE
