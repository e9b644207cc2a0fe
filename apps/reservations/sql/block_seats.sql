-- Takes these locked seats off sale, or gives blocked ones another reason; never one that is held or sold.
UPDATE reservations_seatinventory
SET status = 3, blocked_for = %(blocked_for)s
WHERE seat_id = ANY(%(seat_ids)s::bigint[]) AND status IN (0, 3)
