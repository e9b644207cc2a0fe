-- What may stand in the way of these entries' holding anew: their own reservations, and what these buyers hold by another
-- place in line, left with something in hand. Two plain looks into an index; what belongs to whom the caller can tell. Not
-- locked: only a hold makes new ones, under the lock of its entry, and a buyer has one entry at a time that may.
SELECT id, entry_id, event_id, buyer, status,
       CASE status
           WHEN 'pending_payment' THEN expires_at <= clock_timestamp()
           WHEN 'paying' THEN pay_deadline <= clock_timestamp()
           ELSE false
       END AS lapsed
FROM reservations_reservation
WHERE entry_id = ANY(%(entry_ids)s::uuid[])
UNION ALL
SELECT id, entry_id, event_id, buyer, status,
       CASE status
           WHEN 'pending_payment' THEN expires_at <= clock_timestamp()
           ELSE pay_deadline <= clock_timestamp()
       END
FROM reservations_reservation
WHERE event_id = ANY(%(event_ids)s::bigint[])
  AND buyer = ANY(%(buyers)s::text[])
  AND status IN ('pending_payment', 'paying')
