-- Up to %(limit)s orders of an event, one for each address and buyer with a standing order, in the order of their digests
-- after %(after)s. Returns the digests too. An address and buyer keep their digest whatever happens to their orders, so
-- none is skipped or returned by two pages. An address may have orders of strangers, too.
SELECT DISTINCT ON (recipient.digest) sale.id, recipient.digest
FROM orders_order AS sale
CROSS JOIN LATERAL (
    SELECT encode(sha256(convert_to(sale.email || ' ' || sale.buyer, 'UTF8')), 'hex') COLLATE "C" AS digest
) AS recipient
WHERE sale.event_id = %(event_id)s
  AND sale.status IN ('confirmed', 'partly_refunded')
  AND recipient.digest > %(after)s
ORDER BY recipient.digest, sale.placed_at, sale.id
LIMIT %(limit)s
