-- I6: wrong stored responses of this batch: several responses for one key, a checkout or cancellation response that
-- names no order of its buyer, or a response with the status canceled although the order has not ended.
SELECT known.scope, known.key, checked.wrong
FROM kernel_idempotentanswer AS known
LEFT JOIN orders_order AS sale
    ON known.scope SIMILAR TO '(checkout|cancel):%%' AND sale.id = (known.answer::jsonb ->> 'order_id')::uuid
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN EXISTS (
            SELECT 1
            FROM kernel_idempotentanswer AS other
            WHERE other.scope = known.scope AND other.key = known.key AND other.id <> known.id
        ) THEN 'two answers to one key'
        WHEN known.scope LIKE 'checkout:%%' AND known.scope IS DISTINCT FROM 'checkout:' || sale.entry_id
          OR known.scope LIKE 'cancel:%%' AND known.scope IS DISTINCT FROM 'cancel:' || sale.buyer
          THEN 'no order of this buyer'
        WHEN known.answer::jsonb ->> 'status' = 'canceled' AND sale.status IN ('placed', 'paying', 'confirmed')
          THEN 'canceled, and the order is ' || sale.status
    END AS wrong
) AS checked
WHERE known.id > %(after)s
  AND known.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND checked.wrong IS NOT NULL
