-- The current deadlines of these entries' live reservations. The caller has locked the entries, and only holds, which
-- take the same locks, create reservations.
SELECT entry_id, CASE status WHEN 'paying' THEN pay_deadline ELSE expires_at END
FROM reservations_reservation
WHERE entry_id = ANY(%(entry_ids)s::uuid[]) AND status IN ('pending_payment', 'paying')
