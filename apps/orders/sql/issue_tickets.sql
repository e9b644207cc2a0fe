-- Insert these tickets, in the sequence of the arrays.
INSERT INTO orders_ticket (
    code, order_id, order_line_id, line_id, place, seat_id, label, section, row, number, category, price_minor, holder,
    issued_at, replaced_by
)
SELECT
    ticket.code, ticket.order_id, ticket.order_line_id, ticket.line_id, ticket.place, ticket.seat_id, ticket.label,
    ticket.section, ticket.row, ticket.number, ticket.category, ticket.price_minor, ticket.holder, %(issued_at)s, ''
FROM unnest(
    %(codes)s::text[], %(order_ids)s::uuid[], %(order_line_ids)s::bigint[], %(line_ids)s::bigint[], %(place_numbers)s::int[],
    %(seat_ids)s::bigint[], %(labels)s::text[], %(sections)s::text[], %(rows)s::text[], %(numbers)s::text[],
    %(categories)s::text[], %(prices_minor)s::bigint[], %(holders)s::text[]
) WITH ORDINALITY AS ticket (
    code, order_id, order_line_id, line_id, place, seat_id, label, section, row, number, category, price_minor, holder,
    position
)
ORDER BY ticket.position
