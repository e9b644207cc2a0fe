-- Locks up to %(limit)s reservations past their deadline, in id order, passing over those somebody else is deciding.
SELECT reservation.id
FROM reservations_reservation AS reservation
WHERE ((reservation.status = 'pending_payment' AND reservation.expires_at <= clock_timestamp())
    OR (reservation.status = 'paying' AND reservation.pay_deadline <= clock_timestamp()))
ORDER BY reservation.id
LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED
