-- The counts of each section of the event by its inventory, and by the lines of live and confirmed reservations, in one
-- statement. General admission only has `taken`, which is returned in the place of held seats.
SELECT section.id,
       section.slug,
       section.kind = 'general_admission',
       section.capacity,
       coalesce(seats.total, general.capacity, 0),
       coalesce(seats.free, general.capacity - general.blocked - general.taken, 0),
       coalesce(seats.held, general.taken, 0),
       coalesce(seats.sold, 0),
       coalesce(seats.blocked, general.blocked, 0),
       lines.held,
       lines.sold
FROM events_section AS section
LEFT JOIN LATERAL (
    SELECT count(*) AS total,
           count(*) FILTER (WHERE status = 0) AS free,
           count(*) FILTER (WHERE status = 1) AS held,
           count(*) FILTER (WHERE status = 2) AS sold,
           count(*) FILTER (WHERE status = 3) AS blocked
    FROM reservations_seatinventory
    WHERE section_id = section.id
) AS seats ON section.kind = 'reserved'
LEFT JOIN reservations_generaladmissioninventory AS general
    ON general.section_id = section.id AND section.kind = 'general_admission'
CROSS JOIN LATERAL (
    SELECT coalesce(sum(line.quantity) FILTER (WHERE reservation.status IN ('pending_payment', 'paying')), 0) AS held,
           coalesce(sum(line.quantity) FILTER (WHERE reservation.status = 'confirmed'), 0) AS sold
    FROM reservations_reservationline AS line
    JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
    WHERE line.section_id = section.id AND line.live
) AS lines
WHERE section.event_id = %(event_id)s
ORDER BY section.position, section.id
