-- What stands in the way of these entries' holding anew: a live reservation (and whether its deadline has passed), or
-- one that is paid, which ends an admission. Live also counts what the same buyer holds by an earlier place in line,
-- left with something in hand. Not locked: only a hold makes new ones, under the lock of its entry, and a buyer has one
-- entry at a time that may.
WITH asked AS (
    SELECT *
    FROM unnest(%(entry_ids)s::uuid[], %(event_ids)s::bigint[], %(buyers)s::text[]) AS given (entry_id, event_id, buyer)
), standing AS (
    SELECT asked.entry_id, reservation.id, reservation.status, reservation.expires_at, reservation.pay_deadline
    FROM asked
    JOIN reservations_reservation AS reservation ON reservation.entry_id = asked.entry_id
    WHERE reservation.status IN ('pending_payment', 'paying', 'confirmed')
    UNION
    SELECT asked.entry_id, reservation.id, reservation.status, reservation.expires_at, reservation.pay_deadline
    FROM asked
    JOIN reservations_reservation AS reservation
        ON reservation.event_id = asked.event_id AND reservation.buyer = asked.buyer
    WHERE reservation.status IN ('pending_payment', 'paying')
)
SELECT entry_id,
       id,
       status = 'confirmed' AS paid,
       CASE status
           WHEN 'pending_payment' THEN expires_at <= clock_timestamp()
           WHEN 'paying' THEN pay_deadline <= clock_timestamp()
           ELSE false
       END AS lapsed
FROM standing
ORDER BY entry_id, paid DESC
