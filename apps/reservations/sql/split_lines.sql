-- Records returned quantities of these lines of a locked reservation as separate lines, beside the lines that keep the
-- rest.
INSERT INTO reservations_reservationline
    (reservation_id, section_id, category_id, quantity, price_minor, live, returned_at)
SELECT line.reservation_id, line.section_id, line.category_id, given.quantity, line.price_minor, false, %(now)s
FROM unnest(%(line_ids)s::bigint[], %(quantities)s::int[]) AS given (line_id, quantity)
JOIN reservations_reservationline AS line ON line.id = given.line_id AND line.live AND line.quantity > given.quantity
