-- Up to %(limit)s orders of a notice, one for each address and buyer that has no mail of it yet: those whose seats were
-- held before all shoppers saw the change. An address may have orders of strangers, too, so one order of it does not stand
-- for all. Nothing is locked but the notice, by the caller.
SELECT DISTINCT ON (sale.email, sale.buyer) sale.id
FROM orders_order AS sale
JOIN reservations_reservation AS held ON held.id = sale.reservation_id
WHERE sale.event_id = %(event_id)s
  AND sale.status IN ('confirmed', 'partly_refunded')
  AND held.created_at <= %(held_until)s
  AND NOT EXISTS (
      SELECT
      FROM orders_schedulemail AS mail
      JOIN orders_order AS other ON other.id = mail.order_id
      WHERE mail.notice_id = %(notice_id)s AND other.email = sale.email AND other.buyer = sale.buyer
  )
ORDER BY sale.email, sale.buyer, sale.placed_at, sale.id
LIMIT %(limit)s
