-- Count the valid tickets of an event, and those of them that are checked in, by section.
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
