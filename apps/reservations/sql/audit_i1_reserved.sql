-- I1 for reserved seating: every seat of the section has one inventory row, and what is held and sold is what the
-- lines of live and confirmed reservations say.
SELECT section.event_id, section.slug, section.capacity, seats.total, seats.held, seats.sold, lines.held, lines.sold
FROM events_section AS section
CROSS JOIN LATERAL (
    SELECT count(*) AS total,
           count(*) FILTER (WHERE status = 1) AS held,
           count(*) FILTER (WHERE status = 2) AS sold
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
WHERE section.event_id = %(event_id)s
  AND section.kind = 'reserved'
  AND (seats.total <> section.capacity OR seats.held <> lines.held OR seats.sold <> lines.sold)
