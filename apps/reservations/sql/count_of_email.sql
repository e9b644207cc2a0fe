-- The event's seats of this email address, without one reservation: those that count, and those of overdue
-- reservations that are not swept, which a payment in time may still confirm.
SELECT coalesce(sum(seat_count) FILTER (WHERE NOT lapsed.yes), 0),
       coalesce(sum(seat_count) FILTER (WHERE lapsed.yes), 0)
FROM reservations_reservation
CROSS JOIN LATERAL (
    SELECT CASE status
               WHEN 'pending_payment' THEN expires_at <= clock_timestamp()
               WHEN 'paying' THEN pay_deadline <= clock_timestamp()
               ELSE false
           END
) AS lapsed (yes)
WHERE event_id = %(event_id)s
  AND email = %(email)s
  AND id <> %(apart_from)s
  AND status IN ('pending_payment', 'paying', 'confirmed')
