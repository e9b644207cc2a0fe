-- The reservations with tickets of a general-admission section, in the order in which they would be canceled: overdue,
-- then unpaid, then paid, the newest of each first.
SELECT reservation.id, sum(line.quantity)
FROM reservations_reservationline AS line
JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
WHERE line.section_id = %(section_id)s
  AND line.seat_id IS NULL
  AND line.live
  AND reservation.status IN ('pending_payment', 'paying', 'confirmed')
GROUP BY reservation.id
ORDER BY CASE reservation.status
             WHEN 'pending_payment' THEN reservation.expires_at <= clock_timestamp()
             WHEN 'paying' THEN reservation.pay_deadline <= clock_timestamp()
             ELSE false
         END DESC,
         reservation.status = 'confirmed',
         coalesce(reservation.confirmed_at, reservation.created_at) DESC,
         reservation.id DESC
