-- The lines of a reservation hold again, but for those that were given back.
UPDATE reservations_reservationline
SET live = true
WHERE reservation_id = %(reservation_id)s AND NOT live AND returned_at IS NULL
