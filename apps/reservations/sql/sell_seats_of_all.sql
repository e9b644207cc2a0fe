-- Marks the held, locked seats of these reservations as sold, and returns the reservation of each.
UPDATE reservations_seatinventory
SET status = 2
WHERE reservation_id = ANY(%(reservation_ids)s::uuid[]) AND status = 1
RETURNING reservation_id
