-- Locks these seats in id order, waiting for locked ones, and returns the values that may prevent a change.
SELECT seat_id, section_id, category_id, status, blocked_for
FROM reservations_seatinventory
WHERE seat_id = ANY(%(seat_ids)s::bigint[])
ORDER BY seat_id
FOR NO KEY UPDATE
