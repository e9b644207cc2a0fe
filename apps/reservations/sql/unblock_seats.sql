-- Puts these locked, blocked seats on sale.
UPDATE reservations_seatinventory
SET status = 0, blocked_for = ''
WHERE seat_id = ANY(%(seat_ids)s::bigint[]) AND status = 3
