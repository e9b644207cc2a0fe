-- Up to %(limit)s orders of a notice, for each address that has no mail of it yet: one of each buyer who paid, and one of
-- all free orders, whose seats were held before all shoppers saw the change. An address may have orders of strangers, too:
-- a paid one does not stand for another buyer's, and any number of free ones are one mail. Nothing is locked but the
-- notice, by the caller.
SELECT DISTINCT ON (sale.email, recipient.buyer) sale.id
FROM orders_order AS sale
CROSS JOIN LATERAL (SELECT CASE WHEN sale.total_minor > 0 THEN sale.buyer ELSE '' END AS buyer) AS recipient
JOIN reservations_reservation AS held ON held.id = sale.reservation_id
WHERE sale.event_id = %(event_id)s
  AND sale.status IN ('confirmed', 'partly_refunded')
  AND held.created_at <= %(held_until)s
  AND NOT EXISTS (
      SELECT
      FROM orders_schedulemail AS mail
      JOIN orders_order AS other ON other.id = mail.order_id
      WHERE mail.notice_id = %(notice_id)s
        AND other.email = sale.email
        AND CASE WHEN other.total_minor > 0 THEN other.buyer ELSE '' END = recipient.buyer
  )
ORDER BY sale.email, recipient.buyer, sale.placed_at, sale.id
LIMIT %(limit)s
