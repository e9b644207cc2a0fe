-- I4: orders of this piece without exactly the valid tickets they should have: one per place while the order stands
-- whole, none once it does not stand.
SELECT audited.number, audited.status, audited.seat_count, audited.valid_count
FROM (
    SELECT
        sale.number,
        sale.status,
        reservation.seat_count,
        (SELECT count(*) FROM orders_ticket WHERE order_id = sale.id AND voided_at IS NULL) AS valid_count
    FROM orders_order AS sale
    JOIN reservations_reservation AS reservation ON reservation.id = sale.reservation_id
    WHERE sale.id > %(after)s
      AND sale.id <= %(until)s
      AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
) AS audited
WHERE CASE audited.status
    WHEN 'confirmed' THEN audited.valid_count <> audited.seat_count
    WHEN 'partly_refunded' THEN audited.valid_count NOT BETWEEN 1 AND audited.seat_count
    ELSE audited.valid_count <> 0
END
