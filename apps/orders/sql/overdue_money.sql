-- Up to %(limit)s charges that are still pending %(seconds)s seconds after the end of their grace period, and refunds
-- that are still only requested %(seconds)s seconds after their request.
SELECT overdue.kind, overdue.id, sale.number, floor(extract(epoch FROM clock_timestamp() - overdue.since))::bigint
FROM (
    SELECT 'payment' AS kind, id, order_id, counts_until AS since
    FROM orders_payment
    WHERE status = 'pending' AND counts_until < clock_timestamp() - make_interval(secs => %(seconds)s)
    UNION ALL
    SELECT 'refund', id, order_id, requested_at
    FROM orders_refund
    WHERE status = 'requested' AND requested_at < clock_timestamp() - make_interval(secs => %(seconds)s)
) AS overdue
JOIN orders_order AS sale ON sale.id = overdue.order_id
WHERE %(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s
ORDER BY overdue.since
LIMIT %(limit)s
