-- The state of these seats, read without locks, only to see which requests can still succeed.
SELECT seat_id, status, reservation_id
FROM reservations_seatinventory
WHERE seat_id = ANY(%(seat_ids)s::bigint[])
