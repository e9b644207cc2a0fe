-- I4: orders of this batch whose credit notes exceed their invoice, or whose invoice's total is not the order's.
SELECT sale.number, sale.total_minor, invoice.total_minor, coalesce(sum(note.total_minor), 0)
FROM orders_order AS sale
JOIN orders_invoice AS invoice ON invoice.order_id = sale.id AND invoice.kind = 'invoice'
LEFT JOIN orders_invoice AS note ON note.refers_to_id = invoice.id
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
GROUP BY sale.id, invoice.id
HAVING invoice.total_minor <> sale.total_minor
    OR coalesce(sum(note.total_minor), 0) > invoice.total_minor
    OR coalesce(sum(note.tax_minor), 0) > invoice.tax_minor
