-- I2 and I10: seats of this batch whose inventory row and live line name different reservations, or a reservation in
-- the wrong status.
SELECT coalesce(seat.seat_id, line.seat_id), coalesce(seat.event_id, line.event_id), seat.status, seat.reservation_id,
       line.reservation_id, reservation.status
FROM (SELECT seat_id, event_id, status, reservation_id
      FROM reservations_seatinventory
      WHERE seat_id > %(after)s AND seat_id <= %(until)s AND status IN (1, 2)) AS seat
FULL JOIN (SELECT held.seat_id, held.reservation_id, owner.event_id
           FROM reservations_reservationline AS held
           LEFT JOIN reservations_reservation AS owner ON owner.id = held.reservation_id
           WHERE held.live AND held.seat_id > %(after)s AND held.seat_id <= %(until)s) AS line
    ON line.seat_id = seat.seat_id
LEFT JOIN reservations_reservation AS reservation ON reservation.id = seat.reservation_id
WHERE seat.seat_id IS NULL
   OR line.seat_id IS NULL
   OR seat.reservation_id IS DISTINCT FROM line.reservation_id
   OR seat.event_id IS DISTINCT FROM line.event_id
   OR reservation.id IS NULL
   OR (seat.status = 1 AND reservation.status NOT IN ('pending_payment', 'paying'))
   OR (seat.status = 2 AND reservation.status <> 'confirmed')
