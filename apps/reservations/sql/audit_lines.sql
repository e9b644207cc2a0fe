-- I1: lines that still hold for a reservation that has ended, or that hold nothing for one that stands.
SELECT reservation.id, reservation.status, count(*) FILTER (WHERE line.live), count(*), reservation.seat_count,
       coalesce(sum(line.quantity), 0)
FROM reservations_reservation AS reservation
LEFT JOIN reservations_reservationline AS line ON line.reservation_id = reservation.id
WHERE reservation.event_id = %(event_id)s
GROUP BY reservation.id
HAVING (reservation.status IN ('canceled', 'expired') AND bool_or(line.live))
    OR (reservation.status NOT IN ('canceled', 'expired') AND NOT coalesce(bool_and(line.live), false))
    OR coalesce(sum(line.quantity), 0) <> reservation.seat_count
