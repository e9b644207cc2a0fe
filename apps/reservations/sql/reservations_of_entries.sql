-- The reservations that may prevent new holds of these entries: their own, and those of these buyers (given with the
-- event) by an earlier entry that they left while it had a reservation. The caller assigns them to the entries. They
-- are not locked: only a hold creates reservations, under its entry's lock, and a buyer has one valid entry at a time.
--
-- Each buyer costs one lookup in the index of buyers, with that index's condition; confirmed reservations are filtered
-- afterwards. With lists of buyers, or a condition on live reservations, the planner expects few rows, reads all live
-- reservations and compares each with every buyer. In the middle of a sale that was most of a batch's cost.
SELECT id, entry_id, event_id, buyer, status,
       CASE status
           WHEN 'pending_payment' THEN expires_at <= clock_timestamp()
           WHEN 'paying' THEN pay_deadline <= clock_timestamp()
           ELSE false
       END AS lapsed
FROM reservations_reservation
WHERE entry_id = ANY(%(entry_ids)s::uuid[])
UNION ALL
SELECT held.id, held.entry_id, held.event_id, held.buyer, held.status,
       CASE held.status
           WHEN 'pending_payment' THEN held.expires_at <= clock_timestamp()
           ELSE held.pay_deadline <= clock_timestamp()
       END
FROM unnest(%(event_ids)s::bigint[], %(buyers)s::text[]) AS asked (event_id, buyer)
CROSS JOIN LATERAL (
    SELECT id, entry_id, event_id, buyer, status, expires_at, pay_deadline
    FROM reservations_reservation
    WHERE event_id = asked.event_id
      AND buyer = asked.buyer
      AND status IN ('pending_payment', 'paying', 'confirmed')
    OFFSET 0
) AS held
WHERE held.status <> 'confirmed'
