-- Store these captured payments. The caller has locked their orders.
UPDATE orders_payment AS payment
SET status = 'succeeded', settled_at = %(now)s, next_action = NULL, captured_minor = given.amount_minor,
    currency = given.currency, occurred_at = given.occurred_at,
    reference = CASE WHEN payment.reference = '' THEN given.reference ELSE payment.reference END
FROM unnest(
    %(payment_ids)s::uuid[], %(amounts_minor)s::bigint[], %(currencies)s::text[], %(times)s::timestamptz[],
    %(references)s::text[]
) AS given (payment_id, amount_minor, currency, occurred_at, reference)
WHERE payment.id = given.payment_id
