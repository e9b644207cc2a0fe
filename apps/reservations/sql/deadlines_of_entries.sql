-- The deadline in force of each of these entries' live reservation. The entries are locked by the caller: only a hold
-- makes new ones, and it holds that lock.
SELECT entry_id, CASE status WHEN 'paying' THEN pay_deadline ELSE expires_at END
FROM reservations_reservation
WHERE entry_id = ANY(%(entry_ids)s::uuid[]) AND status IN ('pending_payment', 'paying')
