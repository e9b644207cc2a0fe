-- I1 and I10: reservations of this batch that have ended with live lines, or have not ended but lack live lines; whose
-- lines do not add up to the number of tickets or the price; or with an invalid line: a seat with a quantity above one,
-- a quantity below one, a negative price, a section without general admission. Returned lines do not count. Lines are
-- looked up reservation by reservation: a join would read all lines for each batch.
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
