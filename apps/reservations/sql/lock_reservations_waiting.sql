-- Locks these reservations in id order, waiting for locked ones.
SELECT id
FROM reservations_reservation
WHERE id = ANY(%(reservation_ids)s::uuid[])
ORDER BY id
FOR NO KEY UPDATE
