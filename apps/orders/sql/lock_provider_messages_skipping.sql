-- Lock these provider messages in id order, except those that another transaction has locked, and return their rows as
-- read under the locks. The caller has locked their orders.
SELECT id, provider, message_id, kind, payment_id, reference, amount_minor, currency, occurred_at, refund_key,
       refund_reference, failure, dispute_reference, next_action, raw, received_at, processed_at, outcome
FROM orders_providermessage
WHERE id = ANY(%(message_ids)s::bigint[])
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED
