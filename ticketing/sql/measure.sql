-- The metrics of one scrape, each read by an index: metric name, label value or empty, value.
SELECT 'payment_provider_faults_count', provider, faults_count::float8
FROM orders_providerstanding
UNION ALL
SELECT 'payment_provider_resting', provider, (rests_until IS NOT NULL)::integer::float8
FROM orders_providerstanding
UNION ALL
(
    SELECT 'audit_breaches_count', '', breach_count::float8
    FROM kernel_auditrun
    ORDER BY started_at DESC
    LIMIT 1
)
UNION ALL
(
    SELECT 'audit_unchecked_count', '', (
        SELECT count(*)::float8
        FROM jsonb_array_elements(report) AS asked
        WHERE coalesce(asked ->> 'unchecked', '') <> ''
    )
    FROM kernel_auditrun
    ORDER BY started_at DESC
    LIMIT 1
)
UNION ALL
(
    SELECT 'audit_finished_seconds', '', extract(epoch FROM started_at + duration_ms * interval '1 ms')::float8
    FROM kernel_auditrun
    ORDER BY started_at DESC
    LIMIT 1
)
UNION ALL
(
    SELECT 'reconcile_left_count', '', (difference_count - repaired_count - gone_count)::float8
    FROM kernel_reconcilerun
    WHERE part IS NULL
    ORDER BY started_at DESC
    LIMIT 1
)
UNION ALL
(
    SELECT 'reconcile_failed_count', '', failure_count::float8
    FROM kernel_reconcilerun
    WHERE part IS NULL
    ORDER BY started_at DESC
    LIMIT 1
)
UNION ALL
(
    SELECT 'reconcile_finished_seconds', '', extract(epoch FROM started_at + duration_ms * interval '1 ms')::float8
    FROM kernel_reconcilerun
    WHERE part IS NULL
    ORDER BY started_at DESC
    LIMIT 1
)
UNION ALL
SELECT 'reconcile_differences', kind, found_count::float8
FROM kernel_reconciletotal
UNION ALL
SELECT 'payments_unsettled_count', '', count(*)::float8
FROM orders_payment
WHERE status = 'pending' AND started_at IS NOT NULL
UNION ALL
SELECT
    'payments_unsettled_seconds', '', coalesce(extract(epoch FROM clock_timestamp() - min(started_at)), 0)::float8
FROM orders_payment
WHERE status = 'pending' AND started_at IS NOT NULL
UNION ALL
SELECT 'refunds_open_count', '', count(*)::float8
FROM orders_refund
WHERE status IN ('requested', 'pending')
UNION ALL
SELECT 'payment_differences_count', kind, count(*)::float8
FROM orders_paymentdifference
WHERE settled_at IS NULL
GROUP BY kind
UNION ALL
SELECT 'reservations_live_count', kind.status, count(reservation.id)::float8
FROM (VALUES ('pending_payment'), ('paying')) AS kind (status)
LEFT JOIN reservations_reservation AS reservation
       ON reservation.status = kind.status AND reservation.status IN ('pending_payment', 'paying')
GROUP BY kind.status
UNION ALL
SELECT 'reservations_overdue_count', '', count(*)::float8
FROM reservations_reservation
WHERE (status = 'pending_payment' AND expires_at <= clock_timestamp())
   OR (status = 'paying' AND pay_deadline <= clock_timestamp())
UNION ALL
SELECT
    'reservations_overdue_seconds',
    '',
    coalesce(
        extract(
            epoch FROM clock_timestamp() - min(CASE WHEN status = 'paying' THEN pay_deadline ELSE expires_at END)
        ),
        0
    )::float8
FROM reservations_reservation
WHERE (status = 'pending_payment' AND expires_at <= clock_timestamp())
   OR (status = 'paying' AND pay_deadline <= clock_timestamp())
UNION ALL
SELECT 'queue_ready_count', '', count(*)::float8
FROM queue_queueentry
WHERE status = 'ready'
