-- I1, I3 and I8: reservations of this piece whose header contradicts itself: paying, confirmed or ended without the time
-- that says so, empty, or with a sum below zero.
SELECT event_id, id, status, pay_deadline, confirmed_at, ended_at, seat_count, total_minor
FROM reservations_reservation
WHERE id > %(after)s
  AND id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR event_id = %(event_id)s)
  AND (status NOT IN ('pending_payment', 'paying', 'confirmed', 'canceled', 'expired')
       OR (status = 'paying' AND pay_deadline IS NULL)
       OR (status = 'confirmed' AND confirmed_at IS NULL)
       OR (status IN ('canceled', 'expired') AND ended_at IS NULL)
       OR seat_count < 1
       OR total_minor < 0)
