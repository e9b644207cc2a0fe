-- Inserts the lines of successful holds.
INSERT INTO reservations_reservationline
    (reservation_id, section_id, category_id, seat_id, quantity, price_minor, live)
SELECT reservation_id, section_id, category_id, seat_id, quantity, price_minor, true
FROM unnest(
    %(reservation_ids)s::uuid[], %(section_ids)s::bigint[], %(category_ids)s::bigint[], %(seat_ids)s::bigint[],
    %(quantities)s::int[], %(prices)s::bigint[]
) AS given (reservation_id, section_id, category_id, seat_id, quantity, price_minor)
