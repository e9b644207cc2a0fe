-- The transaction of the ledger entry, and of the change by staff or a repair, that follows %(limit)s others since the
-- horizon. No row: there are no more.
(
    SELECT transaction_id
    FROM reservations_reservationtransition
    WHERE transaction_id >= %(since)s
    ORDER BY transaction_id
    OFFSET %(limit)s
    LIMIT 1
)
UNION ALL
(
    SELECT transaction_id
    FROM reservations_inventorychange
    WHERE transaction_id >= %(since)s
    ORDER BY transaction_id
    OFFSET %(limit)s
    LIMIT 1
)
