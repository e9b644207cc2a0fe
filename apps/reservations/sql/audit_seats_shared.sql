-- I2: seats of this batch on several live lines.
SELECT line.seat_id, min(reservation.event_id), count(*)
FROM reservations_reservationline AS line
JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
WHERE line.seat_id IN (
    SELECT seat_id
    FROM reservations_reservationline
    WHERE live AND seat_id > %(after)s AND seat_id <= %(until)s
    GROUP BY seat_id
    HAVING count(*) > 1
)
  AND line.live
GROUP BY line.seat_id
