-- Each buyer's seats of each event: those that count, the overdue reservations that are not swept, and the seats of
-- both together.
SELECT reservation.event_id,
       reservation.buyer,
       coalesce(sum(reservation.seat_count) FILTER (WHERE NOT lapsed.yes), 0),
       array_remove(array_agg(CASE WHEN lapsed.yes THEN reservation.id END), NULL),
       sum(reservation.seat_count)
FROM unnest(%(event_ids)s::bigint[], %(buyers)s::text[]) AS asked (event_id, buyer)
JOIN reservations_reservation AS reservation
    ON reservation.event_id = asked.event_id
   AND reservation.buyer = asked.buyer
   AND reservation.status IN ('pending_payment', 'paying', 'confirmed')
CROSS JOIN LATERAL (
    SELECT CASE reservation.status
               WHEN 'pending_payment' THEN reservation.expires_at <= clock_timestamp()
               WHEN 'paying' THEN reservation.pay_deadline <= clock_timestamp()
               ELSE false
           END
) AS lapsed (yes)
GROUP BY reservation.event_id, reservation.buyer
