-- Locks these reservations in id order, except those that another transaction has locked.
SELECT id
FROM reservations_reservation
WHERE id = ANY(%(reservation_ids)s::uuid[])
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED
