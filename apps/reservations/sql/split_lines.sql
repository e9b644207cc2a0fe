-- Records the returned quantity of each of these lines as a new, returned line. The original line keeps the rest
-- (lower_lines.sql). The reservation must be locked.
INSERT INTO reservations_reservationline
    (reservation_id, section_id, category_id, quantity, price_minor, live, returned_at)
SELECT line.reservation_id, line.section_id, line.category_id, given.quantity, line.price_minor, false, %(now)s
FROM unnest(%(line_ids)s::bigint[], %(quantities)s::int[]) AS given (line_id, quantity)
JOIN reservations_reservationline AS line ON line.id = given.line_id AND line.live AND line.quantity > given.quantity
