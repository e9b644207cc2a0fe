-- Set these orders, which the caller has locked, back to placed: their buyers may pay again.
UPDATE orders_order
SET status = 'placed'
WHERE id = ANY(%(order_ids)s::uuid[])
