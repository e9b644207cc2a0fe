-- Set these pending payments to declined. The caller has locked their orders.
UPDATE orders_payment AS payment
SET status = 'declined', settled_at = %(now)s, next_action = NULL, occurred_at = given.occurred_at,
    reference = CASE WHEN payment.reference = '' THEN given.reference ELSE payment.reference END
FROM unnest(%(payment_ids)s::uuid[], %(references)s::text[], %(times)s::timestamptz[])
    AS given (payment_id, reference, occurred_at)
WHERE payment.id = given.payment_id
