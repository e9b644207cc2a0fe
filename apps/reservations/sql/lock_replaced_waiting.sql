-- Locks the reservations that are to be replaced, in id order, waiting for whoever is deciding them.
SELECT id, entry_id, buyer, event_id, status, expires_at, seat_count
FROM reservations_reservation
WHERE id = ANY(%(reservation_ids)s::uuid[])
ORDER BY id
FOR NO KEY UPDATE
