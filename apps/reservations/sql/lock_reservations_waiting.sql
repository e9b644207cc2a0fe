-- Locks these reservations in id order, waiting for whoever is deciding them.
SELECT id
FROM reservations_reservation
WHERE id = ANY(%(reservation_ids)s::uuid[])
ORDER BY id
FOR NO KEY UPDATE
