-- The lines of a locked reservation that hold something, with the price of one place.
SELECT id, section_id, seat_id, quantity, price_minor
FROM reservations_reservationline
WHERE reservation_id = %(reservation_id)s AND live
ORDER BY id
