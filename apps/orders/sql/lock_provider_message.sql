-- Lock a provider's message and return its row as read under the lock. The caller has locked the message's order.
SELECT id, provider, message_id, kind, payment_id, reference, amount_minor, currency, occurred_at, refund_key,
       refund_reference, failure, dispute_reference, next_action, raw, received_at, processed_at, outcome
FROM orders_providermessage
WHERE id = %(message_id)s
FOR NO KEY UPDATE
