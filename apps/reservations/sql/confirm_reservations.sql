-- Confirms these reservations, which the caller has locked.
UPDATE reservations_reservation
SET status = 'confirmed', confirmed_at = %(now)s
WHERE id = ANY(%(reservation_ids)s::uuid[])
