-- The live lines of these reservations, which the caller has locked.
SELECT id, reservation_id, section_id, seat_id, quantity
FROM reservations_reservationline
WHERE reservation_id = ANY(%(reservation_ids)s::uuid[]) AND live
ORDER BY id
