-- General-admission rows of these sections with the sum of their live lines in live and confirmed reservations, in one
-- statement and therefore one snapshot.
SELECT row.section_id, section.slug, row.event_id, row.capacity, row.blocked, row.house, row.taken,
       coalesce(lines.quantity, 0)
FROM reservations_generaladmissioninventory AS row
JOIN events_section AS section ON section.id = row.section_id
LEFT JOIN LATERAL (
    SELECT sum(line.quantity) AS quantity
    FROM reservations_reservationline AS line
    JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
    WHERE line.section_id = row.section_id
      AND line.seat_id IS NULL
      AND line.live
      AND reservation.status IN ('pending_payment', 'paying', 'confirmed')
) AS lines ON true
WHERE row.section_id = ANY(%(section_ids)s::bigint[])
ORDER BY row.section_id
