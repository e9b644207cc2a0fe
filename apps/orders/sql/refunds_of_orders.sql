-- The refunds of these orders by the time of their requests, without failed ones that were replaced.
SELECT id, order_id, payment_id, amount_minor, currency, status, replaces_id, reason, requested_by, reference, failure,
       requested_at, asked_at, settled_at, paid_out_by, paid_out_note
FROM orders_refund AS refund
WHERE order_id = ANY(%(order_ids)s::uuid[])
  AND NOT EXISTS (SELECT FROM orders_refund AS repeated WHERE repeated.replaces_id = refund.id)
ORDER BY requested_at, id
