-- The lines of these orders, in the sequence of their bills.
SELECT id, order_id, kind, reservation_line_id, place, description, category, price_minor, discount_minor, fee_minor,
       tax_rate, tax_included, tax_minor, total_minor, canceled_at
FROM orders_orderline
WHERE order_id = ANY(%(order_ids)s::uuid[])
ORDER BY id
