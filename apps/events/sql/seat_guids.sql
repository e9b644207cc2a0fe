-- The public ids of these seats.
SELECT id, guid
FROM events_seat
WHERE id = ANY(%(seat_ids)s::bigint[])
