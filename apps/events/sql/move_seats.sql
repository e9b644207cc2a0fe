-- These seats of the event are of that category from now on.
UPDATE events_seat
SET category_id = %(category_id)s
WHERE event_id = %(event_id)s AND id = ANY(%(seat_ids)s::bigint[])
