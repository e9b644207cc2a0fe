-- I7: payments of this piece that a provider's words changed more or less than once: money taken is told by exactly
-- one message that changed something, with that sum and at that time; and an attempt is declined at most once.
SELECT sale.number, payment.attempt, payment.status, payment.captured_minor, told.taking_count, told.fitting_count,
       told.declining_count
FROM orders_order AS sale
JOIN orders_payment AS payment ON payment.order_id = sale.id
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE message.kind = 'payment.succeeded' AND message.outcome <> %(known)s) AS taking_count,
        count(*) FILTER (
            WHERE message.kind = 'payment.succeeded'
              AND message.outcome <> %(known)s
              AND message.amount_minor = payment.captured_minor
              AND message.currency = payment.currency
              AND message.occurred_at = payment.occurred_at
        ) AS fitting_count,
        count(*) FILTER (WHERE message.kind = 'payment.declined' AND message.outcome <> %(late)s) AS declining_count
    FROM orders_providermessage AS message
    WHERE message.payment_id = payment.id AND message.processed_at IS NOT NULL
) AS told
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND (told.taking_count <> (payment.status = 'succeeded')::integer
       OR told.fitting_count <> told.taking_count
       OR told.declining_count > 1)
