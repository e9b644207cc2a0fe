-- The payments of these orders, by attempt.
SELECT id, order_id, attempt, provider, method, faults_count, reference, status, amount_minor, captured_minor, refunded_minor,
       currency, next_action, counts_until, created_at, started_at, asked_at, occurred_at, settled_at
FROM orders_payment
WHERE order_id = ANY(%(order_ids)s::uuid[])
ORDER BY attempt
