-- The sum of an order's adjustments: fees kept from returned lines, less goodwill refunds.
SELECT coalesce(sum(amount_minor), 0)::bigint
FROM orders_orderadjustment
WHERE order_id = %(order_id)s
