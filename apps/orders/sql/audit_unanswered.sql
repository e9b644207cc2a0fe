-- I6: orders of this batch that have no stored checkout response although its retention has not ended, or have one
-- with a wrong status, total or currency. The transaction that places an order stores its response. The total is the
-- order's, or that of an earlier payment attempt, before a retry with another promo code.
SELECT sale.number, remembered.answer_count, remembered.other_count
FROM orders_order AS sale
CROSS JOIN LATERAL (
    SELECT
        count(*) AS answer_count,
        count(*) FILTER (
            WHERE known.status <> 202
               OR (known.answer::jsonb ->> 'total_minor' IS DISTINCT FROM sale.total_minor::text
                   AND NOT EXISTS (
                       SELECT
                       FROM orders_payment AS payment
                       WHERE payment.order_id = sale.id
                         AND known.answer::jsonb ->> 'total_minor' = payment.amount_minor::text
                   ))
               OR known.answer::jsonb ->> 'currency' IS DISTINCT FROM sale.currency
        ) AS other_count
    FROM kernel_idempotentanswer AS known
    WHERE known.scope = 'checkout:' || sale.entry_id
      AND known.answer::jsonb ->> 'order_id' = sale.id::text
) AS remembered
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND (remembered.other_count > 0
       OR (remembered.answer_count = 0
           AND sale.placed_at > clock_timestamp() - make_interval(hours => %(remembered_hours)s)))
