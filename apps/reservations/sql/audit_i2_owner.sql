-- I2: seats whose inventory row and live line name different reservations, or a reservation in the wrong state.
SELECT coalesce(seat.seat_id, line.seat_id), seat.status, seat.reservation_id, line.reservation_id, reservation.status
FROM (SELECT seat_id, status, reservation_id
      FROM reservations_seatinventory
      WHERE event_id = %(event_id)s AND status IN (1, 2)) AS seat
FULL JOIN (SELECT line.seat_id, line.reservation_id
           FROM reservations_reservationline AS line
           JOIN reservations_reservation AS owner ON owner.id = line.reservation_id
           WHERE owner.event_id = %(event_id)s AND line.live AND line.seat_id IS NOT NULL) AS line
    ON line.seat_id = seat.seat_id
LEFT JOIN reservations_reservation AS reservation ON reservation.id = seat.reservation_id
WHERE seat.seat_id IS NULL
   OR line.seat_id IS NULL
   OR seat.reservation_id <> line.reservation_id
   OR reservation.id IS NULL
   OR (seat.status = 1 AND reservation.status NOT IN ('pending_payment', 'paying'))
   OR (seat.status = 2 AND reservation.status <> 'confirmed')
