-- These reservations.
SELECT id, event_id, entry_id, account_id, buyer, email, status, expires_at, pay_deadline, seat_count, total_minor, currency,
       access_code_id, created_at, confirmed_at, ended_at
FROM reservations_reservation
WHERE id = ANY(%(reservation_ids)s::uuid[])
