-- All lines of a reservation, live or not.
SELECT id, section_id, seat_id, quantity
FROM reservations_reservationline
WHERE reservation_id = %(reservation_id)s
ORDER BY id
