-- The reservations that ever had this seat, and when they gave it back if they stood on without it, by the section's
-- index (ended lines have none of their own by seat); and those that are known to have left it for another.
SELECT reservation.id, reservation.buyer, line.returned_at
FROM reservations_reservationline AS line
JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
WHERE line.section_id = %(section_id)s AND line.seat_id = %(seat_id)s
UNION
SELECT id, buyer, NULL
FROM reservations_reservation
WHERE id = ANY(%(moved)s::uuid[])
ORDER BY 1
