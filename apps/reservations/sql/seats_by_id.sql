-- The locations and properties of these seats.
SELECT seat.seat_id, plan.guid, seat.section_id, seat.category_id, seat.row_index, seat.place_index, seat.rank,
       seat.accessible, seat.companion
FROM reservations_seatinventory AS seat
JOIN events_seat AS plan ON plan.id = seat.seat_id
WHERE seat.seat_id = ANY(%(seat_ids)s::bigint[])
