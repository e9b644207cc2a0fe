-- Locks up to %(limit)s reservations that lapsed so many seconds ago, the longest overdue first, passing over what
-- somebody else is deciding. Each half is read from the front of its own index, however many lapsed and however many
-- rows there are: the clock is asked once, in a subquery, because an index cannot look for what may change by the row.
-- Nothing is waited for, so the order of the locks matters to nobody.
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
