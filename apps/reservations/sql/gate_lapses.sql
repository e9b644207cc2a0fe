-- What lapses in each section of the event until a moment: milliseconds from now, rounded down to tenths of a second,
-- and how many places; what has lapsed unswept counts as lapsing now. Also how many reservations were looked at.
WITH lapsing AS MATERIALIZED (
    SELECT id, deadline
    FROM (
        SELECT id, expires_at AS deadline
        FROM reservations_reservation
        WHERE status = 'pending_payment' AND expires_at <= %(until)s AND event_id = %(event_id)s
        UNION ALL
        SELECT id, pay_deadline
        FROM reservations_reservation
        WHERE status = 'paying' AND pay_deadline <= %(until)s AND event_id = %(event_id)s
    ) AS live
    ORDER BY deadline
    LIMIT %(most)s
)
SELECT line.section_id,
       greatest(0, floor(extract(epoch FROM lapsing.deadline - %(now)s) * 10) * 100)::bigint AS milliseconds,
       sum(line.quantity)::bigint,
       (SELECT count(*) FROM lapsing)
FROM lapsing
JOIN reservations_reservationline AS line ON line.reservation_id = lapsing.id AND line.live
GROUP BY line.section_id, milliseconds
ORDER BY line.section_id, milliseconds
