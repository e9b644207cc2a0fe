-- The current deadlines of live reservations, the earliest first, from the end of the last page.
SELECT id, event_id, deadline
FROM (
    (
        SELECT id, event_id, expires_at AS deadline
        FROM reservations_reservation
        WHERE status = 'pending_payment' AND expires_at >= %(after)s AND (expires_at, id) > (%(after)s, %(after_id)s)
        ORDER BY expires_at, id
        LIMIT %(limit)s
    )
    UNION ALL
    (
        SELECT id, event_id, pay_deadline
        FROM reservations_reservation
        WHERE status = 'paying' AND pay_deadline >= %(after)s AND (pay_deadline, id) > (%(after)s, %(after_id)s)
        ORDER BY pay_deadline, id
        LIMIT %(limit)s
    )
) AS live
ORDER BY deadline, id
LIMIT %(limit)s
