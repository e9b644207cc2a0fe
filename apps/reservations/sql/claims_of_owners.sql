-- What these reservations' claims on their seats are worth, unlocked: does it stand, and has its deadline passed while
-- no sweep has ended it. One that is neither has ended, and its seats are free or somebody else's by now.
SELECT id,
       status IN ('pending_payment', 'paying', 'confirmed') AS claims,
       CASE status
           WHEN 'pending_payment' THEN expires_at <= clock_timestamp()
           WHEN 'paying' THEN pay_deadline <= clock_timestamp()
           ELSE false
       END AS lapsed
FROM reservations_reservation
WHERE id = ANY(%(reservation_ids)s::uuid[])
