-- General admission: capacity, blocked and taken from the row, sold from the lines of confirmed reservations.
SELECT row.section_id, row.capacity, row.blocked, row.taken, coalesce(sold.quantity, 0)
FROM reservations_generaladmissioninventory AS row
LEFT JOIN LATERAL (
    SELECT sum(line.quantity) AS quantity
    FROM reservations_reservationline AS line
    JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
    WHERE line.section_id = row.section_id
      AND line.live
      AND line.seat_id IS NULL
      AND reservation.status = 'confirmed'
) AS sold ON true
WHERE row.section_id = ANY(%(section_ids)s::bigint[])
