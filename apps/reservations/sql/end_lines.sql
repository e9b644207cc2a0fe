-- Ends the lines of these reservations.
UPDATE reservations_reservationline
SET live = false
WHERE reservation_id = ANY(%(reservation_ids)s::uuid[]) AND live
