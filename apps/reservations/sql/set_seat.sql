-- Says how one locked seat stands.
UPDATE reservations_seatinventory
SET status = %(status)s, reservation_id = %(reservation_id)s, blocked_for = ''
WHERE seat_id = %(seat_id)s
