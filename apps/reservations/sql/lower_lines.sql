-- Lowers the quantities of these lines of a locked reservation; each keeps at least one.
UPDATE reservations_reservationline AS line
SET quantity = line.quantity - given.quantity
FROM unnest(%(line_ids)s::bigint[], %(quantities)s::int[]) AS given (line_id, quantity)
WHERE line.id = given.line_id AND line.live AND line.quantity > given.quantity
