-- The orders that a transaction of this range has written, with their reservations; and the reservations with a
-- ledger entry of such a transaction, each with its order or NULL.
SELECT sale.id, sale.reservation_id
FROM orders_order AS sale
WHERE sale.id IN (
    SELECT order_id FROM orders_changedorder WHERE transaction_id >= %(since)s AND transaction_id < %(until)s
)
UNION
SELECT sale.id, changed.reservation_id
FROM (
    SELECT DISTINCT reservation_id
    FROM reservations_reservationtransition
    WHERE transaction_id >= %(since)s AND transaction_id < %(until)s
) AS changed
LEFT JOIN orders_order AS sale ON sale.reservation_id = changed.reservation_id
