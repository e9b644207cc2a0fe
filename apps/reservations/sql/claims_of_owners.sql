-- The claims of these reservations on their seats, read without locks: whether the reservation is valid, and whether it
-- is overdue but not swept. A reservation that is neither has ended, and no longer has its seats.
SELECT id,
       status IN ('pending_payment', 'paying', 'confirmed') AS claims,
       CASE status
           WHEN 'pending_payment' THEN expires_at <= clock_timestamp()
           WHEN 'paying' THEN pay_deadline <= clock_timestamp()
           ELSE false
       END AS lapsed
FROM reservations_reservation
WHERE id = ANY(%(reservation_ids)s::uuid[])
