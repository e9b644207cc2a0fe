-- I8: payments of this piece that an order stands on though they occurred after the deadline and its grace; and those
-- that would count for less than the deadline, or for longer than the longest grace there is after it.
SELECT sale.number, payment.attempt, payment.occurred_at, payment.counts_until, sale.pay_deadline,
       payment.counts_until BETWEEN sale.pay_deadline AND sale.pay_deadline + interval '1 hour' AS right_limit
FROM orders_order AS sale
JOIN orders_payment AS payment ON payment.order_id = sale.id
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND (payment.counts_until NOT BETWEEN sale.pay_deadline AND sale.pay_deadline + interval '1 hour'
       OR (sale.status IN ('confirmed', 'partly_refunded')
           AND payment.captured_minor > payment.refunded_minor
           AND payment.occurred_at > payment.counts_until))
