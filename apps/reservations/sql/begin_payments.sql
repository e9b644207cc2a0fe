-- Begins the payment of these reservations, which the caller has locked.
UPDATE reservations_reservation AS reservation
SET status = 'paying', email = given.email, pay_deadline = given.pay_deadline
FROM unnest(%(reservation_ids)s::uuid[], %(emails)s::text[], %(pay_deadlines)s::timestamptz[])
    AS given (reservation_id, email, pay_deadline)
WHERE reservation.id = given.reservation_id
