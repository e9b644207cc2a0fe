-- The lines of a reservation hold again.
UPDATE reservations_reservationline
SET live = true
WHERE reservation_id = %(reservation_id)s AND NOT live
