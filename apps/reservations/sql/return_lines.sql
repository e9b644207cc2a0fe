-- Ends these lines of a locked reservation as returned.
UPDATE reservations_reservationline
SET live = false, returned_at = %(now)s
WHERE id = ANY(%(line_ids)s::bigint[]) AND live
