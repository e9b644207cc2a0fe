-- I8: payments that an order of this piece stands on though they occurred after the deadline and its grace.
SELECT sale.number, payment.attempt, payment.occurred_at, payment.counts_until
FROM orders_order AS sale
JOIN orders_payment AS payment ON payment.order_id = sale.id
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND sale.status IN ('confirmed', 'partly_refunded')
  AND payment.captured_minor > payment.refunded_minor
  AND payment.occurred_at > payment.counts_until
