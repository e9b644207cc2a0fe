-- I4: orders of this batch that do not keep exactly what they are owed. A confirmed, partly refunded or refunded order
-- is owed the sum of its uncanceled lines, plus fees kept from returned ones, less goodwill refunds. Any other order is
-- owed nothing: its money is refunded or being refunded.
SELECT audited.number, audited.status, audited.owed_minor, audited.kept_minor
FROM (
    SELECT
        sale.number,
        sale.status,
        CASE WHEN sale.status IN ('confirmed', 'partly_refunded', 'refunded') THEN
            coalesce(
                (SELECT sum(total_minor) FROM orders_orderline WHERE order_id = sale.id AND canceled_at IS NULL), 0
            )
            + coalesce((SELECT sum(amount_minor) FROM orders_orderadjustment WHERE order_id = sale.id), 0)
        ELSE 0 END AS owed_minor,
        coalesce((SELECT sum(captured_minor - refunded_minor) FROM orders_payment WHERE order_id = sale.id), 0)
            AS kept_minor
    FROM orders_order AS sale
    WHERE sale.id > %(after)s
      AND sale.id <= %(until)s
      AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
) AS audited
WHERE audited.kept_minor <> audited.owed_minor
