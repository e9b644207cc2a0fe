-- Moves these locked seats to another price category; never changes a held or sold seat.
UPDATE reservations_seatinventory
SET category_id = %(category_id)s
WHERE seat_id = ANY(%(seat_ids)s::bigint[]) AND status IN (0, 3)
