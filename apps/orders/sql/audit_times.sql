-- I8: payments of this batch that confirmed an order although they occurred after deadline and grace, and payments
-- whose limit is before the deadline or more than an hour, the longest possible grace, after it.
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
