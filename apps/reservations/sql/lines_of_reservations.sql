-- The lines of these reservations, live or not, with the price of one ticket, except returned ones.
SELECT id, reservation_id, section_id, seat_id, quantity, price_minor
FROM reservations_reservationline
WHERE reservation_id = ANY(%(reservation_ids)s::uuid[]) AND returned_at IS NULL
ORDER BY id
