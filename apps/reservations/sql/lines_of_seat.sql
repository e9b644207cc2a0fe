-- The reservations that ever had this seat, with the time of its return if they stayed confirmed, and those known to
-- have moved to another seat. Read by the section's index, because ended lines have no index by seat.
SELECT reservation.id, reservation.buyer, line.returned_at
FROM reservations_reservationline AS line
JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
WHERE line.section_id = %(section_id)s AND line.seat_id = %(seat_id)s
UNION
SELECT id, buyer, NULL
FROM reservations_reservation
WHERE id = ANY(%(moved)s::uuid[])
ORDER BY 1
