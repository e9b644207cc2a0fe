-- Moves these seats of the event to another category.
UPDATE events_seat
SET category_id = %(category_id)s
WHERE event_id = %(event_id)s AND id = ANY(%(seat_ids)s::bigint[])
