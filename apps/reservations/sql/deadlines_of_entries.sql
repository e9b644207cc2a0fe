-- The current deadline of each of these entries' live reservation. The caller has the entries locked, and only a hold,
-- which holds this lock, creates reservations.
SELECT entry_id, CASE status WHEN 'paying' THEN pay_deadline ELSE expires_at END
FROM reservations_reservation
WHERE entry_id = ANY(%(entry_ids)s::uuid[]) AND status IN ('pending_payment', 'paying')
