-- The lines of a locked reservation that are not returned, with the price of one ticket.
SELECT id, section_id, seat_id, quantity, price_minor
FROM reservations_reservationline
WHERE reservation_id = %(reservation_id)s AND live
ORDER BY id
