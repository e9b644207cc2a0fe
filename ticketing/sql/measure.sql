-- The metrics of one scrape, each read by an index: metric name, label value or empty, value.
SELECT figure.name, provider.provider, figure.value
FROM orders_providerstanding AS provider
CROSS JOIN LATERAL (VALUES
    ('payment_provider_faults_count', provider.faults_count::float8),
    ('payment_provider_resting', (provider.rests_until IS NOT NULL)::integer::float8)
) AS figure (name, value)
UNION ALL
SELECT figure.name, '', figure.value
FROM (
    SELECT
        sum(audit.breach_count) AS breach_count,
        sum((
            SELECT count(*)
            FROM jsonb_array_elements(audit.report) AS checked
            WHERE coalesce(checked ->> 'unchecked', '') <> ''
        )) AS unchecked_count,
        max(audit.started_at + audit.duration_ms * interval '1 ms') AS finished_at,
        max(audit.started_at + audit.duration_ms * interval '1 ms') FILTER (WHERE kind.scope = 'everything') AS whole_at
    FROM (VALUES ('changes'), ('everything')) AS kind (scope)
    CROSS JOIN LATERAL (
        SELECT * FROM kernel_auditrun AS run WHERE run.scope = kind.scope ORDER BY started_at DESC LIMIT 1
    ) AS audit
) AS audits
CROSS JOIN LATERAL (VALUES
    ('audit_breaches_count', audits.breach_count::float8),
    ('audit_unchecked_count', audits.unchecked_count::float8),
    ('audit_finished_seconds', extract(epoch FROM audits.finished_at)::float8),
    ('audit_whole_finished_seconds', extract(epoch FROM audits.whole_at)::float8)
) AS figure (name, value)
WHERE figure.value IS NOT NULL
UNION ALL
SELECT figure.name, '', figure.value
FROM (SELECT * FROM kernel_reconcilerun WHERE part IS NULL ORDER BY started_at DESC LIMIT 1) AS run
CROSS JOIN LATERAL (VALUES
    ('reconcile_left_count', (run.difference_count - run.repaired_count - run.gone_count)::float8),
    ('reconcile_failed_count', run.failure_count::float8),
    ('reconcile_finished_seconds', extract(epoch FROM run.started_at + run.duration_ms * interval '1 ms')::float8)
) AS figure (name, value)
UNION ALL
SELECT 'reconcile_differences', kind, found_count::float8
FROM kernel_reconciletotal
UNION ALL
SELECT figure.name, '', figure.value
FROM (
    SELECT count(*) AS count, min(started_at) AS oldest
    FROM orders_payment
    WHERE status = 'pending' AND started_at IS NOT NULL
) AS unsettled
CROSS JOIN LATERAL (VALUES
    ('payments_unsettled_count', unsettled.count::float8),
    ('payments_unsettled_seconds', coalesce(extract(epoch FROM clock_timestamp() - unsettled.oldest), 0)::float8)
) AS figure (name, value)
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
SELECT figure.name, '', figure.value
FROM (
    SELECT count(*) AS count, min(CASE WHEN status = 'paying' THEN pay_deadline ELSE expires_at END) AS first
    FROM reservations_reservation
    WHERE (status = 'pending_payment' AND expires_at <= clock_timestamp())
       OR (status = 'paying' AND pay_deadline <= clock_timestamp())
) AS overdue
CROSS JOIN LATERAL (VALUES
    ('reservations_overdue_count', overdue.count::float8),
    ('reservations_overdue_seconds', coalesce(extract(epoch FROM clock_timestamp() - overdue.first), 0)::float8)
) AS figure (name, value)
UNION ALL
SELECT 'queue_ready_count', '', count(*)::float8
FROM queue_queueentry
WHERE status = 'ready'
