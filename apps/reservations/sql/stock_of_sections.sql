-- The counts of each section at one time: capacity, free, held, sold, house seats, out of use.
SELECT section_id,
       count(*),
       count(*) FILTER (WHERE status = 0),
       count(*) FILTER (WHERE status = 1),
       count(*) FILTER (WHERE status = 2),
       count(*) FILTER (WHERE blocked_for = 'house'),
       count(*) FILTER (WHERE blocked_for = 'out_of_use')
FROM reservations_seatinventory
WHERE section_id = ANY(%(section_ids)s::bigint[])
GROUP BY section_id
UNION ALL
SELECT row.section_id,
       row.capacity,
       row.capacity - row.blocked - row.taken,
       row.taken - coalesce(sold.quantity, 0),
       coalesce(sold.quantity, 0),
       row.house,
       row.blocked - row.house
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
