-- The free accessible seats of each of these events that has any.
SELECT inventory.event_id, count(*)
FROM events_seat AS seat
JOIN reservations_seatinventory AS inventory ON inventory.seat_id = seat.id
WHERE seat.event_id = ANY(%(event_ids)s::bigint[]) AND seat.accessible AND inventory.status = 0
GROUP BY inventory.event_id
