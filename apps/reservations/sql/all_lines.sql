-- All lines of a reservation, live or not, except returned ones.
SELECT id, section_id, seat_id, quantity
FROM reservations_reservationline
WHERE reservation_id = %(reservation_id)s AND returned_at IS NULL
ORDER BY id
