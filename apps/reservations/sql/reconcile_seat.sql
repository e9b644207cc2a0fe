-- The state of one locked seat: its row; the reservation that it names, with the number of tickets in its lines,
-- whether one of its lines is for this seat, and the number in its header; and the live and confirmed reservations with
-- a live line on the seat.
SELECT seat.event_id, seat.section_id, seat.status, seat.reservation_id, owner.status, owner.seat_count,
       (SELECT coalesce(sum(quantity), 0) FROM reservations_reservationline WHERE reservation_id = owner.id
          AND returned_at IS NULL),
       EXISTS (SELECT FROM reservations_reservationline WHERE reservation_id = owner.id
          AND seat_id = seat.seat_id AND returned_at IS NULL),
       ARRAY(
           SELECT standing.id
           FROM reservations_reservationline AS line
           JOIN reservations_reservation AS standing ON standing.id = line.reservation_id
           WHERE line.seat_id = seat.seat_id
             AND line.live
             AND standing.status IN ('pending_payment', 'paying', 'confirmed')
           ORDER BY standing.id
       )
FROM reservations_seatinventory AS seat
LEFT JOIN reservations_reservation AS owner ON owner.id = seat.reservation_id
WHERE seat.seat_id = %(seat_id)s
