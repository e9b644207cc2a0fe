-- How these seats stand, unlocked: only to see which requests can still win.
SELECT seat_id, section_id, category_id, status
FROM reservations_seatinventory
WHERE seat_id = ANY(%(seat_ids)s::bigint[])
