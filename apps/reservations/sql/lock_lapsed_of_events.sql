-- The same, only of these events: what a hold on shortage asks for.
WITH pending AS (
    SELECT id
    FROM reservations_reservation
    WHERE event_id = ANY(%(event_ids)s::bigint[])
      AND status = 'pending_payment'
      AND expires_at <= (SELECT clock_timestamp())
    ORDER BY expires_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
), paying AS (
    SELECT id
    FROM reservations_reservation
    WHERE event_id = ANY(%(event_ids)s::bigint[])
      AND status = 'paying'
      AND pay_deadline <= (SELECT clock_timestamp())
    ORDER BY pay_deadline
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT id FROM pending
UNION ALL
SELECT id FROM paying
LIMIT %(limit)s
