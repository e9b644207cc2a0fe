-- Live lines of a section whose reservation does not exist.
SELECT line.reservation_id, count(*), sum(line.quantity)
FROM reservations_reservationline AS line
WHERE line.section_id = %(section_id)s
  AND line.live
  AND NOT EXISTS (SELECT FROM reservations_reservation AS reservation WHERE reservation.id = line.reservation_id)
GROUP BY line.reservation_id
ORDER BY line.reservation_id
LIMIT %(limit)s
