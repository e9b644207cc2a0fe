-- The sum of each of these orders' adjustments: fees kept from returned lines, less goodwill refunds.
SELECT order_id, sum(amount_minor)::bigint
FROM orders_orderadjustment
WHERE order_id = ANY(%(order_ids)s::uuid[])
GROUP BY order_id
