-- I4: orders of this piece that keep other money than they are owed. An order that stands is owed its total, a partly
-- refunded one less than that and more than nothing, any other nothing: its money is back, or on its way.
SELECT audited.number, audited.status, audited.total_minor, audited.kept_minor
FROM (
    SELECT
        sale.number,
        sale.status,
        sale.total_minor,
        coalesce((SELECT sum(captured_minor - refunded_minor) FROM orders_payment WHERE order_id = sale.id), 0)
            AS kept_minor
    FROM orders_order AS sale
    WHERE sale.id > %(after)s
      AND sale.id <= %(until)s
      AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
) AS audited
WHERE CASE audited.status
    WHEN 'confirmed' THEN audited.kept_minor <> audited.total_minor
    WHEN 'partly_refunded' THEN audited.kept_minor NOT BETWEEN 1 AND audited.total_minor - 1
    ELSE audited.kept_minor <> 0
END
