-- The new order, which the caller has just placed, has its reservation's deadline.
UPDATE orders_order
SET pay_deadline = %(pay_deadline)s
WHERE id = %(order_id)s
