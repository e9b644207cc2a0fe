-- These locked seats are sold at that category's price from now on; never one that is held or sold.
UPDATE reservations_seatinventory
SET category_id = %(category_id)s
WHERE seat_id = ANY(%(seat_ids)s::bigint[]) AND status IN (0, 3)
