-- What was refunded, or is being refunded, of the orders that an event sold.
SELECT coalesce(sum(refund.amount_minor), 0)::bigint
FROM orders_refund AS refund
JOIN orders_order AS sale ON sale.id = refund.order_id
WHERE sale.event_id = %(event_id)s
  AND sale.confirmed_at IS NOT NULL
  AND refund.status IN ('requested', 'pending', 'succeeded', 'paid_out')
