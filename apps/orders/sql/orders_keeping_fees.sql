-- Up to %(limit)s orders of a canceled event that were fully refunded before the cancellation and still keep fees,
-- except those that failed in it. Nothing is locked: each order is checked again under its own lock.
SELECT sale.id
FROM orders_order AS sale
WHERE sale.event_id = %(event_id)s
  AND sale.status = 'refunded'
  AND sale.reason <> 'event_canceled'
  AND coalesce((SELECT sum(total_minor) FROM orders_orderline WHERE order_id = sale.id AND canceled_at IS NULL), 0)
      + coalesce((SELECT sum(amount_minor) FROM orders_orderadjustment WHERE order_id = sale.id), 0) > 0
  AND NOT EXISTS (SELECT FROM orders_cancellationfailure WHERE order_id = sale.id)
ORDER BY sale.id
LIMIT %(limit)s
