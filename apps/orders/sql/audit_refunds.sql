-- I4: payments of this batch whose refunded amount is not the sum of their refunds. A failed refund and its replacement
-- count once. If the refunds that succeeded or were paid out have a greater sum, that sum counts.
SELECT sale.number, payment.attempt, payment.refunded_minor, coalesce(refunds.sum_minor, 0)
FROM orders_order AS sale
JOIN orders_payment AS payment ON payment.order_id = sale.id
LEFT JOIN LATERAL (
    SELECT greatest(
        sum(amount_minor) FILTER (
            WHERE NOT EXISTS (SELECT FROM orders_refund AS again WHERE again.replaces_id = refund.id)
        ),
        sum(amount_minor) FILTER (WHERE refund.status IN ('succeeded', 'paid_out'))
    ) AS sum_minor
    FROM orders_refund AS refund
    WHERE payment_id = payment.id
) AS refunds ON true
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND payment.refunded_minor <> coalesce(refunds.sum_minor, 0)
