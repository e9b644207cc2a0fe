-- What may stand in the way of these entries' holding anew: their own reservations, and what each of these buyers (named
-- with its event) holds by another place in line, left with something in hand. What belongs to whom the caller can tell.
-- Not locked: only a hold makes new ones, under the lock of its entry, and a buyer has one entry at a time that may.
--
-- Each buyer is one look into the index of buyers, by its very condition, and what is paid goes afterwards: given lists,
-- or asked for live ones alone, the planner believes that there are hardly any and reads all that are live, comparing
-- each with every buyer. In the middle of a sale that was most of what a batch cost.
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
