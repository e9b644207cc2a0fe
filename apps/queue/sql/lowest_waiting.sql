-- The lowest waiting number of this room, if any. min() reads the front of an index. With EXISTS the planner would read
-- entries until one matches, and while a lobby is drawn none matches.
SELECT min(number)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND status = 'waiting'
