-- The reservations of these events that expire until a given time: for each section, milliseconds from now, rounded
-- down to tenths of a second, and the number of tickets; overdue ones count as expiring now. Also the number of
-- reservations read per event, %(most)s at most.
WITH lapsing AS MATERIALIZED (
    SELECT asked.event_id, live.id, live.deadline
    FROM unnest(%(event_ids)s::bigint[]) AS asked (event_id)
    CROSS JOIN LATERAL (
        SELECT id, deadline
        FROM (
            SELECT id, expires_at AS deadline
            FROM reservations_reservation
            WHERE status = 'pending_payment' AND expires_at <= %(until)s AND event_id = asked.event_id
            UNION ALL
            SELECT id, pay_deadline
            FROM reservations_reservation
            WHERE status = 'paying' AND pay_deadline <= %(until)s AND event_id = asked.event_id
        ) AS either
        ORDER BY deadline
        LIMIT %(most)s
    ) AS live
), looked_at AS (
    SELECT event_id, count(*) AS count FROM lapsing GROUP BY event_id
)
SELECT lapsing.event_id,
       line.section_id,
       greatest(0, floor(extract(epoch FROM lapsing.deadline - %(now)s) * 10) * 100)::bigint AS milliseconds,
       sum(line.quantity)::bigint,
       looked_at.count
FROM lapsing
JOIN looked_at ON looked_at.event_id = lapsing.event_id
JOIN reservations_reservationline AS line ON line.reservation_id = lapsing.id AND line.live
GROUP BY lapsing.event_id, looked_at.count, line.section_id, milliseconds
ORDER BY lapsing.event_id, line.section_id, milliseconds
