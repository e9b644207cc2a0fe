-- Locks these seats in id order, skipping locked ones, and returns their state under the lock.
SELECT seat_id, section_id, category_id, status, reservation_id
FROM reservations_seatinventory
WHERE seat_id = ANY(%(seat_ids)s::bigint[])
ORDER BY seat_id
FOR NO KEY UPDATE SKIP LOCKED
