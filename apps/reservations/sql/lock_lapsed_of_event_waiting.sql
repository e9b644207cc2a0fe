-- Locks overdue reservations of one event in id order, waiting for locked ones, for a hold that still finds too little.
-- They are selected first without locks, because waiting for locks in the order of deadlines could deadlock.
SELECT id
FROM reservations_reservation
WHERE id = ANY(ARRAY(
    SELECT id
    FROM (
        (
            SELECT id
            FROM reservations_reservation
            WHERE event_id = %(event_id)s
              AND status = 'pending_payment'
              AND expires_at <= (SELECT clock_timestamp())
            ORDER BY expires_at
            LIMIT %(limit)s
        )
        UNION ALL
        (
            SELECT id
            FROM reservations_reservation
            WHERE event_id = %(event_id)s
              AND status = 'paying'
              AND pay_deadline <= (SELECT clock_timestamp())
            ORDER BY pay_deadline
            LIMIT %(limit)s
        )
    ) AS lapsed
    LIMIT %(limit)s
))
ORDER BY id
FOR NO KEY UPDATE
