-- Seats of this piece that stand otherwise than the live lines on them: one statement, so one moment, and a hold, release
-- or payment under way is seen whole or not at all. A seat of two buyers is an oversell and not told here.
SELECT coalesce(seat.event_id, line.event_id), section.slug, coalesce(seat.seat_id, line.seat_id), plan.guid, seat.status,
       seat.reservation_id, owner.status, line.owner, line.status
FROM (
    SELECT seat_id, event_id, section_id, status, reservation_id
    FROM reservations_seatinventory
    WHERE seat_id > %(after)s AND seat_id <= %(until)s
) AS seat
FULL JOIN (
    SELECT line.seat_id, count(*) AS count, min(line.section_id) AS section_id, min(standing.event_id) AS event_id,
           (array_agg(line.reservation_id))[1] AS owner, min(standing.status) AS status
    FROM reservations_reservationline AS line
    JOIN reservations_reservation AS standing
        ON standing.id = line.reservation_id AND standing.status IN ('pending_payment', 'paying', 'confirmed')
    WHERE line.live AND line.seat_id > %(after)s AND line.seat_id <= %(until)s
    GROUP BY line.seat_id
) AS line ON line.seat_id = seat.seat_id
LEFT JOIN reservations_reservation AS owner ON owner.id = seat.reservation_id
LEFT JOIN events_seat AS plan ON plan.id = coalesce(seat.seat_id, line.seat_id)
LEFT JOIN events_section AS section ON section.id = coalesce(seat.section_id, line.section_id)
WHERE coalesce(line.count, 0) < 2
  AND (seat.seat_id IS NULL
       OR seat.reservation_id IS DISTINCT FROM line.owner
       OR (line.owner IS NULL AND seat.status IN (1, 2))
       OR (line.owner IS NOT NULL AND seat.status <> CASE line.status WHEN 'confirmed' THEN 2 ELSE 1 END))
ORDER BY 3
