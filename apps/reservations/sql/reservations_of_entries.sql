-- What stands in the way of these entries' holding anew: a live reservation (and whether its deadline has passed), or
-- one that is paid, which ends an admission. Not locked: only a hold makes new ones, and it holds the entry's lock.
SELECT entry_id,
       id,
       status = 'confirmed' AS paid,
       CASE status
           WHEN 'pending_payment' THEN expires_at <= clock_timestamp()
           WHEN 'paying' THEN pay_deadline <= clock_timestamp()
           ELSE false
       END AS lapsed
FROM reservations_reservation
WHERE entry_id = ANY(%(entry_ids)s::uuid[]) AND status IN ('pending_payment', 'paying', 'confirmed')
ORDER BY entry_id, paid DESC
