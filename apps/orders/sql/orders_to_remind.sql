-- Up to %(limit)s standing orders of an event, for each address one of each buyer who paid and one of all free orders, as
-- in orders_to_notify.sql, in the order of the recipients' digests after %(after)s. Returns the digests too. A recipient
-- keeps its digest whatever happens to its orders, so none is skipped or returned by two pages.
SELECT DISTINCT ON (recipient.digest) sale.id, recipient.digest
FROM orders_order AS sale
CROSS JOIN LATERAL (
    SELECT encode(sha256(convert_to(
        sale.email || ' ' || CASE WHEN sale.total_minor > 0 THEN sale.buyer ELSE '' END, 'UTF8'
    )), 'hex') COLLATE "C" AS digest
) AS recipient
WHERE sale.event_id = %(event_id)s
  AND sale.status IN ('confirmed', 'partly_refunded')
  AND recipient.digest > %(after)s
ORDER BY recipient.digest, sale.placed_at, sale.id
LIMIT %(limit)s
