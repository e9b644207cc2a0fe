-- The counted sales of an event in a period, in bins of the given length that are aligned to its start.
SELECT date_bin(make_interval(secs => %(bin_seconds)s), minute, %(since)s) AS bin,
       sum(order_count)::bigint,
       sum(ticket_count)::bigint,
       sum(gross_minor)::bigint
FROM orders_salesminute
WHERE event_id = %(event_id)s
  AND minute >= %(since)s
  AND minute < %(until)s
GROUP BY 1
ORDER BY 1
