-- Reservations of the event that are live this long after their deadline.
SELECT id, status, seat_count,
       extract(epoch FROM clock_timestamp() - CASE status WHEN 'paying' THEN pay_deadline ELSE expires_at END)::int
FROM reservations_reservation
WHERE event_id = %(event_id)s
  AND ((status = 'pending_payment' AND expires_at <= clock_timestamp() - make_interval(secs => %(seconds)s))
    OR (status = 'paying' AND pay_deadline <= clock_timestamp() - make_interval(secs => %(seconds)s)))
ORDER BY id
LIMIT %(limit)s
