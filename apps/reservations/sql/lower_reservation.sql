-- A locked, confirmed reservation has so many places less, which cost so much, and at least one still.
UPDATE reservations_reservation
SET seat_count = seat_count - %(places)s, total_minor = total_minor - %(cost_minor)s
WHERE id = %(reservation_id)s AND status = 'confirmed' AND seat_count > %(places)s
