-- Up to %(limit)s open orders that are past their payment deadline, the longest overdue first. Nothing is locked: each
-- order is checked again under its own lock.
SELECT id
FROM orders_order
WHERE status IN ('placed', 'paying') AND pay_deadline <= clock_timestamp()
ORDER BY pay_deadline
LIMIT %(limit)s
