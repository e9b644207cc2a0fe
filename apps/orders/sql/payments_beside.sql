-- All payments of this payment's order, by attempt.
SELECT id, order_id, attempt, provider, method, faults_count, reference, status, amount_minor, captured_minor, refunded_minor,
       currency, next_action, counts_until, created_at, started_at, asked_at, occurred_at, settled_at
FROM orders_payment
WHERE order_id = (SELECT payment.order_id FROM orders_payment AS payment WHERE payment.id = %(payment_id)s)
ORDER BY attempt
