-- Locks the reservations that are to be replaced, in id order, skipping locked ones.
SELECT held.id, held.entry_id, held.buyer, held.event_id, held.status, held.expires_at, held.seat_count, code.code
FROM reservations_reservation AS held
LEFT JOIN reservations_accesscode AS code ON code.id = held.access_code_id
WHERE held.id = ANY(%(reservation_ids)s::uuid[])
ORDER BY held.id
FOR NO KEY UPDATE OF held SKIP LOCKED
