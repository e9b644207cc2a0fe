-- Set the payment deadline of an order that this transaction has just placed.
UPDATE orders_order
SET pay_deadline = %(pay_deadline)s
WHERE id = %(order_id)s
