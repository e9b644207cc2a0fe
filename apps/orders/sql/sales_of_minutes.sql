-- The sales of an event in a period, by minute: orders, tickets and their total.
SELECT date_trunc('minute', sale.confirmed_at) AS minute,
       count(*),
       sum(line.tickets)::bigint,
       sum(sale.total_minor)::bigint
FROM orders_order AS sale
CROSS JOIN LATERAL (
    SELECT count(*) AS tickets
    FROM orders_orderline
    WHERE order_id = sale.id AND kind = 'place'
) AS line
WHERE sale.event_id = %(event_id)s
  AND sale.confirmed_at >= %(since)s
  AND sale.confirmed_at < %(until)s
GROUP BY 1
ORDER BY 1
