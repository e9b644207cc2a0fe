-- I10: live reservations whose current deadline passed before this time.
SELECT event_id, id, status, CASE status WHEN 'paying' THEN pay_deadline ELSE expires_at END
FROM reservations_reservation
WHERE ((status = 'pending_payment' AND expires_at <= %(before)s)
    OR (status = 'paying' AND pay_deadline <= %(before)s))
  AND (%(event_id)s::bigint IS NULL OR event_id = %(event_id)s)
LIMIT %(limit)s
