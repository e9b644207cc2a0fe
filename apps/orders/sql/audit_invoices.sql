-- I4: series of invoices or credit notes whose numbers have a gap or exceed their counter. A constraint rules out
-- duplicates.
SELECT counter.kind, counter.series, counter.year, counter.last, count(invoice.id), coalesce(max(invoice.sequence), 0)
FROM orders_invoicecounter AS counter
LEFT JOIN orders_invoice AS invoice
    ON invoice.kind = counter.kind AND invoice.series = counter.series AND invoice.year = counter.year
GROUP BY counter.id
HAVING count(invoice.id) <> counter.last OR coalesce(max(invoice.sequence), 0) <> counter.last
ORDER BY counter.id
