-- I4: orders of this batch whose discount differs from their code use's, or whose code use is counted although the
-- order has ended, or not counted although it has not.
SELECT audited.number, audited.status, audited.discount_minor, audited.used_minor, audited.is_counted
FROM (
    SELECT
        sale.number,
        sale.status,
        (SELECT coalesce(sum(discount_minor), 0) FROM orders_orderline WHERE order_id = sale.id) AS discount_minor,
        coalesce(used.discount_minor, 0) AS used_minor,
        used.id IS NOT NULL AND used.released_at IS NULL AS is_counted,
        used.id IS NOT NULL AND sale.status NOT IN ('failed', 'canceled', 'refunded') AS is_to_count
    FROM orders_order AS sale
    LEFT JOIN orders_codeuse AS used ON used.order_id = sale.id
    WHERE sale.id > %(after)s
      AND sale.id <= %(until)s
      AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
) AS audited
WHERE audited.discount_minor <> audited.used_minor OR audited.is_counted <> audited.is_to_count
