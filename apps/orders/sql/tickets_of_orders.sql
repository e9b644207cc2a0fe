-- The tickets of these orders, including void ones, in the order of their issue.
SELECT id, code, order_id, order_line_id, line_id, place, seat_id, label, section, row, number, category, price_minor,
       holder, issued_at, checked_in_at, voided_at, successor_id, replaced_by, transfer_id
FROM orders_ticket
WHERE order_id = ANY(%(order_ids)s::uuid[])
ORDER BY id
