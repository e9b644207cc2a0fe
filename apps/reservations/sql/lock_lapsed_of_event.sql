-- Locks up to %(limit)s overdue reservations of one event, skipping locked ones, from indexes that begin with the
-- event.
WITH pending AS (
    SELECT id
    FROM reservations_reservation
    WHERE event_id = %(event_id)s
      AND status = 'pending_payment'
      AND expires_at <= (SELECT clock_timestamp())
    ORDER BY expires_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
), paying AS (
    SELECT id
    FROM reservations_reservation
    WHERE event_id = %(event_id)s
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
