-- Ends a reservation's line on one seat that another reservation shares.
UPDATE reservations_reservationline
SET live = false
WHERE reservation_id = %(reservation_id)s AND seat_id = %(seat_id)s AND live
