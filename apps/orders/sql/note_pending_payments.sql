-- Store the provider's reference of these pending payments, and what their buyers must do. The caller has locked their
-- orders.
UPDATE orders_payment AS payment
SET reference = CASE WHEN payment.reference = '' THEN given.reference ELSE payment.reference END,
    next_action = coalesce(given.next_action, payment.next_action)
FROM unnest(%(payment_ids)s::uuid[], %(references)s::text[], %(next_actions)s::jsonb[])
    AS given (payment_id, reference, next_action)
WHERE payment.id = given.payment_id
