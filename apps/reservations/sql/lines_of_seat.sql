-- The reservations that ever had this seat, by the section's index (ended lines have none of their own by seat), and
-- those that are known to have left it for another.
SELECT reservation.id, reservation.buyer
FROM reservations_reservationline AS line
JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
WHERE line.section_id = %(section_id)s AND line.seat_id = %(seat_id)s
UNION
SELECT id, buyer
FROM reservations_reservation
WHERE id = ANY(%(moved)s::uuid[])
ORDER BY 1
