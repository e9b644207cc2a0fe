-- A reservation's line on one seat, which is somebody else's too, holds nothing any more.
UPDATE reservations_reservationline
SET live = false
WHERE reservation_id = %(reservation_id)s AND seat_id = %(seat_id)s AND live
