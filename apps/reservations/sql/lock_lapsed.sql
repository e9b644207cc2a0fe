-- Locks up to %(limit)s reservations overdue for the given seconds, the longest overdue first, skipping locked ones.
-- Each half reads the front of its index, however many rows there are: the clock is read once, in a subquery, because
-- an index cannot be searched with a volatile function. No lock is waited for, so the order of locks is irrelevant.
WITH pending AS (
    SELECT id
    FROM reservations_reservation
    WHERE status = 'pending_payment'
      AND expires_at <= (SELECT clock_timestamp() - make_interval(secs => %(lapsed_seconds)s))
      AND id <> ALL(%(apart_from)s::uuid[])
    ORDER BY expires_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
), paying AS (
    SELECT id
    FROM reservations_reservation
    WHERE status = 'paying'
      AND pay_deadline <= (SELECT clock_timestamp() - make_interval(secs => %(lapsed_seconds)s))
      AND id <> ALL(%(apart_from)s::uuid[])
    ORDER BY pay_deadline
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT id FROM pending
UNION ALL
SELECT id FROM paying
LIMIT %(limit)s
