-- Blocks these locked seats, or changes the reason of blocked ones; never changes a held or sold seat.
UPDATE reservations_seatinventory
SET status = 3, blocked_for = %(blocked_for)s
WHERE seat_id = ANY(%(seat_ids)s::bigint[]) AND status IN (0, 3)
