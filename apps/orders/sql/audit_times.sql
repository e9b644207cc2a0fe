-- I8: payments of this batch that confirmed an order although they occurred after deadline and grace, and payments
-- whose limit is before their reservation's deadline or more than an hour, the longest possible grace, after it. The
-- order has the reservation's deadline, and so has each of its attempts.
SELECT sale.number, payment.attempt, payment.occurred_at, payment.counts_until, reservation.pay_deadline,
       sale.pay_deadline = reservation.pay_deadline
           AND payment.counts_until BETWEEN sale.pay_deadline AND sale.pay_deadline + interval '1 hour' AS right_limit
FROM orders_order AS sale
JOIN reservations_reservation AS reservation ON reservation.id = sale.reservation_id
JOIN orders_payment AS payment ON payment.order_id = sale.id
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND (sale.pay_deadline IS DISTINCT FROM reservation.pay_deadline
       OR payment.counts_until NOT BETWEEN sale.pay_deadline AND sale.pay_deadline + interval '1 hour'
       OR (sale.status IN ('confirmed', 'partly_refunded')
           AND payment.captured_minor > payment.refunded_minor
           AND payment.occurred_at > payment.counts_until))
