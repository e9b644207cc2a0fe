-- Moves a reservation's live line from one seat to another.
UPDATE reservations_reservationline
SET seat_id = %(to_seat_id)s
WHERE reservation_id = %(reservation_id)s AND seat_id = %(seat_id)s AND live
