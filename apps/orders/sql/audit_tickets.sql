-- I4: orders of this batch whose valid tickets are wrong. A confirmed order must have one for each of its ticket lines,
-- of which none is canceled. A partly refunded order must have at least one, and one for each uncanceled ticket line.
-- Any other order must have none.
SELECT audited.number, audited.status, audited.standing_count, audited.valid_count
FROM (
    SELECT
        sale.number,
        sale.status,
        (SELECT count(*) FROM orders_orderline WHERE order_id = sale.id AND kind = 'place') AS place_count,
        (SELECT count(*) FROM orders_orderline WHERE order_id = sale.id AND kind = 'place' AND canceled_at IS NULL)
            AS standing_count,
        (SELECT count(*) FROM orders_ticket WHERE order_id = sale.id AND voided_at IS NULL) AS valid_count,
        (SELECT count(DISTINCT line.id)
         FROM orders_ticket AS ticket
         JOIN orders_orderline AS line ON line.id = ticket.order_line_id
         WHERE ticket.order_id = sale.id AND ticket.voided_at IS NULL
           AND line.order_id = sale.id AND line.kind = 'place' AND line.canceled_at IS NULL) AS matched_count
    FROM orders_order AS sale
    WHERE sale.id > %(after)s
      AND sale.id <= %(until)s
      AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
) AS audited
WHERE CASE audited.status
    WHEN 'confirmed' THEN audited.valid_count <> audited.place_count
    WHEN 'partly_refunded' THEN audited.valid_count NOT BETWEEN 1 AND audited.place_count
    ELSE audited.valid_count <> 0
END
OR (audited.status IN ('confirmed', 'partly_refunded')
    AND (audited.valid_count <> audited.standing_count OR audited.matched_count <> audited.standing_count))
