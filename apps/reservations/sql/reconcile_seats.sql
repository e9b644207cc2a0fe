-- Seats of this batch whose state differs from the live lines on them. One statement is one snapshot, so that holds,
-- releases and payments in progress are seen completely or not at all. Seats with two buyers are oversold and not
-- listed here. The reservation of each line is looked up separately (OFFSET 0): a join would read all reservations for
-- each batch.
SELECT coalesce(seat.event_id, line.event_id),
       (SELECT slug FROM events_section WHERE id = coalesce(seat.section_id, line.section_id)),
       coalesce(seat.seat_id, line.seat_id),
       (SELECT guid FROM events_seat WHERE id = coalesce(seat.seat_id, line.seat_id)),
       seat.status,
       seat.reservation_id,
       (SELECT status FROM reservations_reservation WHERE id = seat.reservation_id),
       line.owner,
       line.status
FROM (
    SELECT seat_id, event_id, section_id, status, reservation_id
    FROM reservations_seatinventory
    WHERE seat_id > %(after)s AND seat_id <= %(until)s
) AS seat
FULL JOIN (
    SELECT held.seat_id, count(*) AS count, min(held.section_id) AS section_id, min(standing.event_id) AS event_id,
           (array_agg(held.reservation_id))[1] AS owner, min(standing.status) AS status
    FROM reservations_reservationline AS held
    CROSS JOIN LATERAL (
        SELECT event_id, status
        FROM reservations_reservation
        WHERE id = held.reservation_id
        OFFSET 0
    ) AS standing
    WHERE held.live
      AND held.seat_id > %(after)s
      AND held.seat_id <= %(until)s
      AND standing.status IN ('pending_payment', 'paying', 'confirmed')
    GROUP BY held.seat_id
) AS line ON line.seat_id = seat.seat_id
WHERE coalesce(line.count, 0) < 2
  AND (seat.seat_id IS NULL
       OR seat.reservation_id IS DISTINCT FROM line.owner
       OR (line.owner IS NULL AND seat.status IN (1, 2))
       OR (line.owner IS NOT NULL AND seat.status <> CASE line.status WHEN 'confirmed' THEN 2 ELSE 1 END))
ORDER BY 3
