-- A live or confirmed reservation of this event whose lines may be incomplete: one of this general-admission section is
-- not live, or all lines have fewer tickets than the header. Its tickets must stay counted.
SELECT reservation.id
FROM reservations_reservation AS reservation
WHERE reservation.event_id = %(event_id)s
  AND reservation.status IN ('pending_payment', 'paying', 'confirmed')
  AND (EXISTS (
          SELECT 1 FROM reservations_reservationline AS line
          WHERE line.reservation_id = reservation.id
            AND line.section_id = %(section_id)s
            AND line.seat_id IS NULL
            AND NOT line.live
      )
      OR reservation.seat_count > (
          SELECT coalesce(sum(line.quantity), 0) FROM reservations_reservationline AS line
          WHERE line.reservation_id = reservation.id
      ))
ORDER BY reservation.id
LIMIT 1
