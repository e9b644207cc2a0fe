-- The invoices and credit notes of these orders, oldest first.
SELECT id, kind, series, year, sequence, number, order_id, refers_to_id, issued_at, currency, total_minor, tax_minor,
       paper
FROM orders_invoice
WHERE order_id = ANY(%(order_ids)s::uuid[])
ORDER BY id
