-- I10: live lines of this batch whose reservation does not exist. Each is looked up separately, since a batch is small.
SELECT section.event_id, line.reservation_id, line.quantity
FROM reservations_reservationline AS line
LEFT JOIN events_section AS section ON section.id = line.section_id
WHERE line.id > %(after)s
  AND line.id <= %(until)s
  AND line.live
  AND (%(event_id)s::bigint IS NULL OR section.event_id = %(event_id)s)
  AND NOT EXISTS (SELECT FROM reservations_reservation WHERE id = line.reservation_id)
