-- The house seats of these sections.
SELECT seat.seat_id, plan.guid, seat.section_id, seat.category_id, seat.row_index, seat.place_index, seat.rank,
       seat.accessible, seat.companion
FROM reservations_seatinventory AS seat
JOIN events_seat AS plan ON plan.id = seat.seat_id
WHERE seat.section_id = ANY(%(section_ids)s::bigint[])
  AND seat.status = 3
  AND seat.blocked_for = 'house'
  AND NOT EXISTS (SELECT FROM reservations_reservationline WHERE seat_id = seat.seat_id AND live)
ORDER BY seat.seat_id
