-- I7: payments of this batch that provider messages changed wrongly. Exactly one message must have captured a succeeded
-- payment, with the payment's amount and time, and no message any other. At most one message may have declined it.
SELECT sale.number, payment.attempt, payment.status, payment.captured_minor, counted.taking_count, counted.fitting_count,
       counted.declining_count
FROM orders_order AS sale
JOIN orders_payment AS payment ON payment.order_id = sale.id
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE message.kind = 'payment.succeeded') AS taking_count,
        count(*) FILTER (
            WHERE message.kind = 'payment.succeeded'
              AND message.amount_minor = payment.captured_minor
              AND message.currency = payment.currency
              AND message.occurred_at = payment.occurred_at
        ) AS fitting_count,
        count(*) FILTER (WHERE message.kind = 'payment.declined') AS declining_count
    FROM orders_providermessage AS message
    WHERE message.payment_id = payment.id
      AND message.processed_at IS NOT NULL
      AND message.outcome <> ALL(%(without_effect)s::text[])
) AS counted
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND (counted.taking_count <> (payment.status = 'succeeded')::integer
       OR counted.fitting_count <> counted.taking_count
       OR counted.declining_count > 1)
