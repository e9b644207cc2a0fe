-- Up to %(limit)s orders of a notice, one for each address that has no mail of it yet. Nothing is locked but the
-- notice, by the caller.
SELECT DISTINCT ON (sale.email) sale.id
FROM orders_order AS sale
WHERE sale.event_id = %(event_id)s
  AND sale.status IN ('confirmed', 'partly_refunded')
  AND sale.placed_at <= %(orders_until)s
  AND NOT EXISTS (
      SELECT
      FROM orders_schedulemail AS mail
      JOIN orders_order AS other ON other.id = mail.order_id
      WHERE mail.notice_id = %(notice_id)s AND other.email = sale.email
  )
ORDER BY sale.email, sale.placed_at, sale.id
LIMIT %(limit)s
