-- The first and last seat id of the event, and the last of all events.
SELECT min(seat_id), max(seat_id), (SELECT max(seat_id) FROM reservations_seatinventory)
FROM reservations_seatinventory
WHERE event_id = %(event_id)s
