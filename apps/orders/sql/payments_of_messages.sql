-- The payment of each of these provider messages.
SELECT id, payment_id
FROM orders_providermessage
WHERE id = ANY(%(message_ids)s::bigint[]) AND payment_id IS NOT NULL
