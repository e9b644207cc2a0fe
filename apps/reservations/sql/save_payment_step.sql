-- Saves the payment's changes of a reservation, which the caller has locked.
UPDATE reservations_reservation
SET status = %(status)s, email = %(email)s, pay_deadline = %(pay_deadline)s, confirmed_at = %(confirmed_at)s,
    ended_at = %(ended_at)s
WHERE id = %(reservation_id)s
