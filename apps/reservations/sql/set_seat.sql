-- Sets the state of one locked seat.
UPDATE reservations_seatinventory
SET status = %(status)s, reservation_id = %(reservation_id)s, blocked_for = ''
WHERE seat_id = %(seat_id)s
