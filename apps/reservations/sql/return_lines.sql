-- These lines of a locked reservation were given back whole and hold nothing any more.
UPDATE reservations_reservationline
SET live = false, returned_at = %(now)s
WHERE id = ANY(%(line_ids)s::bigint[]) AND live
