-- Withdraws orders that this transaction has inserted and cannot place. Nothing refers to them yet.
DELETE FROM orders_order
WHERE id = ANY(%(order_ids)s::uuid[])
