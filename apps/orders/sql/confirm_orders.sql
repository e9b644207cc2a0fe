-- Confirm these orders, which the caller has locked.
UPDATE orders_order
SET status = 'confirmed', reason = '', confirmed_at = %(now)s, ended_at = NULL, origin = ''
WHERE id = ANY(%(order_ids)s::uuid[])
