-- This provider's payment with this id, and its order's id.
SELECT id, order_id
FROM orders_payment
WHERE id = %(payment_id)s AND provider = %(provider)s
