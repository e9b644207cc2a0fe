-- I2: seats on more than one live line.
SELECT line.seat_id, count(*)
FROM reservations_reservationline AS line
JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
WHERE reservation.event_id = %(event_id)s AND line.live AND line.seat_id IS NOT NULL
GROUP BY line.seat_id
HAVING count(*) > 1
