-- Which of these reservations are live, with their current deadline and whether it has passed.
SELECT id, deadline, deadline <= moment
FROM (
    SELECT id, CASE status WHEN 'paying' THEN pay_deadline ELSE expires_at END AS deadline
    FROM reservations_reservation
    WHERE id = ANY(%(reservation_ids)s::uuid[]) AND status IN ('pending_payment', 'paying')
) AS live
CROSS JOIN (SELECT clock_timestamp() AS moment) AS clock
