-- Set these orders, which the caller has locked, to paying.
UPDATE orders_order
SET status = 'paying'
WHERE id = ANY(%(order_ids)s::uuid[])
