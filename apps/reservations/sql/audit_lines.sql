-- I1 and I10: reservations of this piece whose lines still hold though it has ended, hold nothing though it stands, are
-- not as many places, or do not cost as much, as it says; or one of which is no line at all: a seat twice, less than
-- one place, a price below zero, places where its event has none. Lines that were given back are left out: they count
-- for nothing. Lines are looked up one reservation after the other: a join would read all there are for each piece.
SELECT reservation.event_id, reservation.id, reservation.status, lines.live, lines.count, reservation.seat_count,
       lines.quantity, reservation.total_minor, lines.cost, lines.wrong
FROM reservations_reservation AS reservation
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE live) AS live,
           count(*) AS count,
           coalesce(sum(quantity), 0) AS quantity,
           coalesce(sum(quantity::numeric * price_minor), 0) AS cost,
           count(*) FILTER (
               WHERE quantity < 1
                  OR (seat_id IS NOT NULL AND quantity > 1)
                  OR price_minor < 0
                  OR (seat_id IS NULL AND NOT EXISTS (
                      SELECT FROM reservations_generaladmissioninventory AS row
                      WHERE row.section_id = line.section_id AND row.event_id = reservation.event_id
                  ))
           ) AS wrong
    FROM reservations_reservationline AS line
    WHERE reservation_id = reservation.id AND line.returned_at IS NULL
) AS lines
WHERE reservation.id > %(after)s
  AND reservation.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR reservation.event_id = %(event_id)s)
  AND ((reservation.status IN ('canceled', 'expired') AND lines.live > 0)
    OR (reservation.status NOT IN ('canceled', 'expired') AND (lines.count = 0 OR lines.live < lines.count))
    OR lines.quantity <> reservation.seat_count
    OR lines.cost <> reservation.total_minor
    OR lines.wrong > 0)
