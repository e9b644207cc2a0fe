-- The end of the minute in which the given number of orders after a time is reached; no row if fewer were confirmed.
SELECT date_trunc('minute', confirmed_at) + interval '1 minute'
FROM orders_order
WHERE event_id = %(event_id)s
  AND confirmed_at >= %(since)s
  AND confirmed_at < %(until)s
ORDER BY confirmed_at
OFFSET %(most)s
LIMIT 1
