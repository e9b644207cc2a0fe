-- I1 and I3 for general admission: taken is what live lines say, never negative, never above the capacity.
SELECT row.section_id, row.capacity, row.blocked, row.taken, coalesce(lines.quantity, 0)
FROM reservations_generaladmissioninventory AS row
LEFT JOIN LATERAL (
    SELECT sum(line.quantity) AS quantity
    FROM reservations_reservationline AS line
    JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
    WHERE line.section_id = row.section_id
      AND line.seat_id IS NULL
      AND line.live
      AND reservation.status IN ('pending_payment', 'paying', 'confirmed')
) AS lines ON true
WHERE row.event_id = %(event_id)s
  AND (row.taken <> coalesce(lines.quantity, 0)
       OR row.taken < 0
       OR row.blocked < 0
       OR row.taken + row.blocked > row.capacity)
