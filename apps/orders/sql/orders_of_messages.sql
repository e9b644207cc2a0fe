-- The orders of the payments that these provider messages are about.
SELECT DISTINCT payment.order_id
FROM orders_providermessage AS message
JOIN orders_payment AS payment ON payment.id = message.payment_id
WHERE message.id = ANY(%(message_ids)s::bigint[])
