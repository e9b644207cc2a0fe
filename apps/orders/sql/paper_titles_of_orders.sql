-- Number, kind, time and total of these orders' invoices and credit notes, oldest first.
SELECT order_id, number, kind, issued_at, total_minor
FROM orders_invoice
WHERE order_id = ANY(%(order_ids)s::uuid[])
ORDER BY id
