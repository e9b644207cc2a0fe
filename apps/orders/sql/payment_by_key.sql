-- The ids of the payment with this id at this provider, and of its order.
SELECT id, order_id
FROM orders_payment
WHERE id = %(payment_id)s AND provider = %(provider)s
