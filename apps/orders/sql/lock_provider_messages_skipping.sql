-- Lock those of these provider messages in id order that are about these orders, which the caller has locked, or about
-- none, except those that another transaction has locked, and return their rows as read under the locks. A message of an
-- order that another transaction has locked is left to it: it may note the outcome there while it holds further locks.
SELECT id, provider, message_id, kind, payment_id, reference, amount_minor, currency, occurred_at, refund_key,
       refund_reference, failure, dispute_reference, next_action, raw, received_at, processed_at, outcome
FROM orders_providermessage
WHERE id = ANY(%(message_ids)s::bigint[])
  AND (payment_id IS NULL OR payment_id = ANY(ARRAY(
      SELECT id FROM orders_payment WHERE order_id = ANY(%(order_ids)s::uuid[])
  )))
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED
