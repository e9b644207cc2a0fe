-- I4: payments of this piece whose refunded amount is not the sum of their refunds.
SELECT sale.number, payment.attempt, payment.refunded_minor, coalesce(refunds.sum_minor, 0)
FROM orders_order AS sale
JOIN orders_payment AS payment ON payment.order_id = sale.id
LEFT JOIN LATERAL (
    SELECT sum(amount_minor) AS sum_minor
    FROM orders_refund
    WHERE payment_id = payment.id
) AS refunds ON true
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND payment.refunded_minor <> coalesce(refunds.sum_minor, 0)
