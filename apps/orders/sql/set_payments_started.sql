-- Mark these payments as started. The caller has locked their orders.
UPDATE orders_payment
SET started_at = %(now)s
WHERE id = ANY(%(payment_ids)s::uuid[])
