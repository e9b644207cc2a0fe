-- I8: payments of this piece that would count for longer than the deadline in force and the longest grace there is, or
-- not as long as the deadline.
SELECT sale.number, payment.attempt, payment.counts_until, reservation.pay_deadline
FROM orders_order AS sale
JOIN orders_payment AS payment ON payment.order_id = sale.id
JOIN reservations_reservation AS reservation ON reservation.id = sale.reservation_id
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND payment.counts_until NOT BETWEEN reservation.pay_deadline AND reservation.pay_deadline + interval '1 hour'
