-- Insert the lines of new orders, in the sequence of their bills.
INSERT INTO orders_orderline (
    order_id, kind, reservation_line_id, place, description, category, price_minor, discount_minor, fee_minor,
    tax_rate, tax_included, tax_minor, total_minor
)
SELECT
    line.order_id, line.kind, line.reservation_line_id, line.place, line.description, line.category, line.price_minor,
    line.discount_minor, line.fee_minor, line.tax_rate, line.tax_included, line.tax_minor, line.total_minor
FROM unnest(
    %(order_ids)s::uuid[], %(kinds)s::text[], %(reservation_line_ids)s::bigint[], %(place_numbers)s::int[],
    %(descriptions)s::text[], %(categories)s::text[], %(prices_minor)s::bigint[], %(discounts_minor)s::bigint[],
    %(fees_minor)s::bigint[], %(tax_rates)s::int[], %(taxes_included)s::boolean[], %(taxes_minor)s::bigint[],
    %(totals_minor)s::bigint[]
) WITH ORDINALITY AS line (
    order_id, kind, reservation_line_id, place, description, category, price_minor, discount_minor, fee_minor, tax_rate,
    tax_included, tax_minor, total_minor, position
)
ORDER BY line.position
