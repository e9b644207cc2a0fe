-- Up to %(limit)s open or paid orders of a canceled event, except those that failed in the cancellation. Nothing is
-- locked: each order is checked again under its own lock.
SELECT sale.id
FROM orders_order AS sale
WHERE sale.event_id = %(event_id)s
  AND sale.status IN ('placed', 'paying', 'confirmed', 'partly_refunded')
  AND NOT EXISTS (SELECT FROM orders_cancellationfailure WHERE order_id = sale.id)
ORDER BY sale.id
LIMIT %(limit)s
