-- The reservations with live lines on these locked seats, each with its seat, regardless of the inventory.
SELECT seat_id, reservation_id
FROM reservations_reservationline
WHERE seat_id = ANY(%(seat_ids)s::bigint[]) AND live
ORDER BY seat_id, reservation_id
