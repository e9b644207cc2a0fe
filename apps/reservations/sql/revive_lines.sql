-- Revives the lines of a reservation, except returned ones.
UPDATE reservations_reservationline
SET live = true
WHERE reservation_id = %(reservation_id)s AND NOT live AND returned_at IS NULL
