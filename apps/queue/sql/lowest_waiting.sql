-- The lowest number that waits in this room, if any. It is at the front of its index: for EXISTS the planner reads
-- entries until it meets one, and in a lobby that is being drawn there is none.
SELECT min(number)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND status = 'waiting'
