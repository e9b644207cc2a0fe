-- How these seats stand, unlocked, and where they are: only to see which requests can still win.
SELECT seat_id, status, reservation_id, section_id
FROM reservations_seatinventory
WHERE seat_id = ANY(%(seat_ids)s::bigint[])
