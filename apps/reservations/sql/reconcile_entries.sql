-- Live reservations of the event, not overdue, without a valid entry. A visitor who left the queue keeps the
-- reservation.
SELECT reservation.id, reservation.status, reservation.seat_count, reservation.entry_id, entry.status
FROM reservations_reservation AS reservation
LEFT JOIN queue_queueentry AS entry ON entry.id = reservation.entry_id
WHERE reservation.event_id = %(event_id)s
  AND reservation.status IN ('pending_payment', 'paying')
  AND CASE reservation.status WHEN 'paying' THEN reservation.pay_deadline ELSE reservation.expires_at END
      > clock_timestamp()
  AND (entry.id IS NULL OR entry.status IN ('completed', 'expired'))
ORDER BY reservation.id
LIMIT %(limit)s
