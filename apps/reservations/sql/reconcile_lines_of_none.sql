-- Live lines of these sections whose reservation does not exist.
SELECT line.section_id, line.reservation_id, count(*), sum(line.quantity)
FROM reservations_reservationline AS line
WHERE line.section_id = ANY(%(section_ids)s::bigint[])
  AND line.live
  AND NOT EXISTS (SELECT FROM reservations_reservation AS reservation WHERE reservation.id = line.reservation_id)
GROUP BY line.section_id, line.reservation_id
ORDER BY line.section_id, line.reservation_id
LIMIT %(limit)s
