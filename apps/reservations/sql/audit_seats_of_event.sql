-- Between which ids the event's seats are, and where the last of all is.
SELECT min(seat_id), max(seat_id), (SELECT max(seat_id) FROM reservations_seatinventory)
FROM reservations_seatinventory
WHERE event_id = %(event_id)s
