-- Lowers the ticket count and the total of a locked, confirmed reservation; at least one ticket is left.
UPDATE reservations_reservation
SET seat_count = seat_count - %(count)s, total_minor = total_minor - %(cost_minor)s
WHERE id = %(reservation_id)s AND status = 'confirmed' AND seat_count > %(count)s
