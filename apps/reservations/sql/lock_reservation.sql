-- Locks one reservation.
SELECT id
FROM reservations_reservation
WHERE id = %(reservation_id)s
FOR NO KEY UPDATE
