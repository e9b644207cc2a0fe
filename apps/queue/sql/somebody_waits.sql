-- Whether anybody waits in this room with a number below this one. Asked for the lowest, which is at the front of its
-- index: for EXISTS the planner reads entries until it meets one, and in a lobby that is being drawn there is none.
SELECT coalesce(min(number) < %(below)s, false)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND status = 'waiting'
