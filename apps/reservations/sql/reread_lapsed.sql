-- Reads status and deadline again under the lock, since the rows were selected before it.
SELECT id, status, entry_id, event_id, seat_count
FROM reservations_reservation
WHERE id = ANY(%(reservation_ids)s::uuid[])
  AND status IN ('pending_payment', 'paying')
  AND CASE status WHEN 'paying' THEN pay_deadline ELSE expires_at END <= clock_timestamp()
ORDER BY id
