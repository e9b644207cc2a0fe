-- A payment that was asked of this provider by its id, and whose order it is of.
SELECT id, order_id
FROM orders_payment
WHERE id = %(payment_id)s AND provider = %(provider)s
