-- The same, waiting in id order for those somebody else is deciding: what a hold asks for that is still short.
SELECT reservation.id
FROM reservations_reservation AS reservation
WHERE reservation.event_id = ANY(%(event_ids)s::bigint[])
  AND ((reservation.status = 'pending_payment' AND reservation.expires_at <= clock_timestamp())
    OR (reservation.status = 'paying' AND reservation.pay_deadline <= clock_timestamp()))
ORDER BY reservation.id
LIMIT %(limit)s
FOR NO KEY UPDATE
