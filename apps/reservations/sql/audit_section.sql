-- I1 for one section with reserved seats in one statement: every seat has one inventory row, and held and sold seats
-- equal the lines of live and confirmed reservations. Returns no row if there is no error.
SELECT section.event_id, section.slug, section.capacity, seats.total, seats.available, seats.blocked,
       seats.held, seats.sold, lines.held, lines.sold
FROM events_section AS section
CROSS JOIN LATERAL (
    SELECT count(*) AS total,
           count(*) FILTER (WHERE status = 0) AS available,
           count(*) FILTER (WHERE status = 1) AS held,
           count(*) FILTER (WHERE status = 2) AS sold,
           count(*) FILTER (WHERE status = 3) AS blocked
    FROM reservations_seatinventory
    WHERE section_id = section.id
) AS seats
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE reservation.status IN ('pending_payment', 'paying')) AS held,
           count(*) FILTER (WHERE reservation.status = 'confirmed') AS sold
    FROM reservations_reservationline AS line
    JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
    WHERE line.section_id = section.id AND line.live AND line.seat_id IS NOT NULL
) AS lines
WHERE section.id = %(section_id)s
  AND (seats.total <> section.capacity
       OR seats.available + seats.held + seats.sold + seats.blocked <> section.capacity
       OR seats.held <> lines.held
       OR seats.sold <> lines.sold)
