-- The same, only of these events: what a hold on shortage asks for.
SELECT reservation.id
FROM reservations_reservation AS reservation
WHERE reservation.event_id = ANY(%(event_ids)s::bigint[])
  AND ((reservation.status = 'pending_payment' AND reservation.expires_at <= clock_timestamp())
    OR (reservation.status = 'paying' AND reservation.pay_deadline <= clock_timestamp()))
ORDER BY reservation.id
LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED
