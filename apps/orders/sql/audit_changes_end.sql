-- The transaction of the changed order that follows %(limit)s others since the horizon. No row: there are no more.
SELECT transaction_id
FROM orders_changedorder
WHERE transaction_id >= %(since)s
ORDER BY transaction_id
OFFSET %(limit)s
LIMIT 1
