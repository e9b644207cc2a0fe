-- Ends these reservations.
UPDATE reservations_reservation
SET status = %(to_status)s, ended_at = %(now)s
WHERE id = ANY(%(reservation_ids)s::uuid[])
