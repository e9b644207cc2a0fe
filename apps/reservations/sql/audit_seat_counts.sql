-- I1 for the seats of this batch: for each section the number of seats, and how many are held and sold by the inventory
-- and by the live lines.
SELECT section_id, sum(seats), sum(held), sum(sold), sum(line_held), sum(line_sold)
FROM (
    SELECT section_id,
           count(*) FILTER (WHERE status BETWEEN 0 AND 3) AS seats,
           count(*) FILTER (WHERE status = 1) AS held,
           count(*) FILTER (WHERE status = 2) AS sold,
           0 AS line_held,
           0 AS line_sold
    FROM reservations_seatinventory
    WHERE seat_id > %(after)s AND seat_id <= %(until)s
    GROUP BY section_id
    UNION ALL
    SELECT line.section_id,
           0,
           0,
           0,
           count(*) FILTER (WHERE reservation.status IN ('pending_payment', 'paying')),
           count(*) FILTER (WHERE reservation.status = 'confirmed')
    FROM reservations_reservationline AS line
    JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
    WHERE line.live AND line.seat_id > %(after)s AND line.seat_id <= %(until)s
    GROUP BY line.section_id
) AS counted
GROUP BY section_id
