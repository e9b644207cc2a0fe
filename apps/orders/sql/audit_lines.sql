-- I4: orders of this batch for which one of these is true:
-- the order's total is not the sum of its lines, canceled ones included;
-- its number of ticket lines is not the number of tickets in its reservation's lines, returned ones included;
-- it is confirmed or partly refunded, and its number of uncanceled ticket lines is not its reservation's seat count.
SELECT audited.number, audited.total_minor, audited.lines_minor, audited.held_count, audited.place_count
FROM (
    SELECT
        sale.number,
        sale.status,
        sale.total_minor,
        reservation.seat_count,
        (SELECT coalesce(sum(quantity), 0) FROM reservations_reservationline WHERE reservation_id = reservation.id)
            AS held_count,
        coalesce(sum(line.total_minor), 0) AS lines_minor,
        count(*) FILTER (WHERE line.kind = 'place') AS place_count,
        count(*) FILTER (WHERE line.kind = 'place' AND line.canceled_at IS NULL) AS standing_count
    FROM orders_order AS sale
    JOIN reservations_reservation AS reservation ON reservation.id = sale.reservation_id
    LEFT JOIN orders_orderline AS line ON line.order_id = sale.id
    WHERE sale.id > %(after)s
      AND sale.id <= %(until)s
      AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
    GROUP BY sale.id, reservation.id
) AS audited
WHERE audited.lines_minor <> audited.total_minor
   OR audited.place_count <> audited.held_count
   OR (audited.status IN ('confirmed', 'partly_refunded') AND audited.standing_count <> audited.seat_count)
