-- Up to %(limit)s orders of an event, one for each address with a standing order, in the order of the addresses' digests
-- after %(after)s. Returns the digests too. An address keeps its digest whatever happens to its orders, so none is
-- skipped or returned by two pages.
SELECT DISTINCT ON (address.digest) sale.id, address.digest
FROM orders_order AS sale
CROSS JOIN LATERAL (SELECT encode(sha256(convert_to(sale.email, 'UTF8')), 'hex') COLLATE "C" AS digest) AS address
WHERE sale.event_id = %(event_id)s
  AND sale.status IN ('confirmed', 'partly_refunded')
  AND address.digest > %(after)s
ORDER BY address.digest, sale.placed_at, sale.id
LIMIT %(limit)s
