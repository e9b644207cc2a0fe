-- What an order keeps of returned lines, less what went back beside them.
SELECT coalesce(sum(amount_minor), 0)::bigint
FROM orders_orderadjustment
WHERE order_id = %(order_id)s
