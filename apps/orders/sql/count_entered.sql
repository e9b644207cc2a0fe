-- Per section of an event: its valid tickets, and how many of them are checked in.
SELECT
    ticket.section,
    count(*) AS expected_count,
    count(ticket.checked_in_at) AS entered_count
FROM orders_order AS sale
JOIN orders_ticket AS ticket ON ticket.order_id = sale.id
WHERE sale.event_id = %(event_id)s
  AND sale.status IN ('confirmed', 'partly_refunded')
  AND ticket.voided_at IS NULL
GROUP BY ticket.section
ORDER BY ticket.section
