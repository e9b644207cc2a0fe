-- I1 and I10: reservations of this piece whose lines still hold though it has ended, hold nothing though it stands, or
-- are not as many places as it says.
SELECT reservation.event_id, reservation.id, reservation.status, count(*) FILTER (WHERE line.live), count(line.id),
       reservation.seat_count, coalesce(sum(line.quantity), 0)
FROM reservations_reservation AS reservation
LEFT JOIN reservations_reservationline AS line ON line.reservation_id = reservation.id
WHERE reservation.id > %(after)s
  AND reservation.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR reservation.event_id = %(event_id)s)
GROUP BY reservation.id
HAVING (reservation.status IN ('canceled', 'expired') AND bool_or(line.live))
    OR (reservation.status NOT IN ('canceled', 'expired') AND NOT coalesce(bool_and(line.live), false))
    OR coalesce(sum(line.quantity), 0) <> reservation.seat_count
