-- What was done to a room, in order: neither by whom, nor what they noted about it.
SELECT id, at, what, detail, who = %(system)s
FROM queue_roomact
WHERE event_id = %(event_id)s AND id > %(after)s
ORDER BY id
LIMIT %(most)s
