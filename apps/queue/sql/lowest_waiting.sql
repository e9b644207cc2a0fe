-- The lowest waiting number of this room, if any. It is at the front of its index: with EXISTS the planner reads
-- entries until one matches, and in a lobby that is being drawn none does.
SELECT min(number)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND status = 'waiting'
