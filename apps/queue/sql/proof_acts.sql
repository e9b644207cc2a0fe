-- The operations on a room, in order, without operators and reasons.
SELECT id, at, what, detail, who = %(system)s, refusal <> ''
FROM queue_roomact
WHERE event_id = %(event_id)s AND id > %(after)s
ORDER BY id
LIMIT %(most)s
