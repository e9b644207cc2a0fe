-- The number of tickets held or sold in each section of the event, and how many of them these reservations have.
SELECT line.section_id, sum(line.quantity),
       coalesce(sum(line.quantity) FILTER (WHERE line.reservation_id = ANY(%(reservation_ids)s::uuid[])), 0)
FROM reservations_reservationline AS line
JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
WHERE reservation.event_id = %(event_id)s
  AND line.live
  AND reservation.status IN ('pending_payment', 'paying', 'confirmed')
GROUP BY line.section_id
