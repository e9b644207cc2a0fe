-- The event's seats on several live lines of live and confirmed reservations, one row per claim, with the values that
-- decide which one keeps the seat: whether it is overdue, whether it is paid, and since when.
SELECT claim.seat_id, plan.guid, claim.section_id, claim.reservation_id, claim.lapsed, claim.paid, claim.moment
FROM (
    SELECT line.seat_id, line.section_id, line.reservation_id,
           CASE reservation.status
               WHEN 'pending_payment' THEN reservation.expires_at <= clock_timestamp()
               WHEN 'paying' THEN reservation.pay_deadline <= clock_timestamp()
               ELSE false
           END AS lapsed,
           reservation.status = 'confirmed' AS paid,
           coalesce(reservation.confirmed_at, reservation.created_at) AS moment,
           count(*) OVER (PARTITION BY line.seat_id) AS count
    FROM reservations_reservationline AS line
    JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
    WHERE reservation.event_id = %(event_id)s
      AND reservation.status IN ('pending_payment', 'paying', 'confirmed')
      AND line.live
      AND line.seat_id IS NOT NULL
      AND (%(seat_ids)s::bigint[] IS NULL OR line.seat_id = ANY(%(seat_ids)s::bigint[]))
) AS claim
LEFT JOIN events_seat AS plan ON plan.id = claim.seat_id
WHERE claim.count > 1
ORDER BY claim.seat_id, claim.reservation_id
