-- The last that was done to a room, latest first: neither by whom, nor what they noted about it.
SELECT at, what, detail, who = %(system)s
FROM queue_roomact
WHERE event_id = %(event_id)s
ORDER BY id DESC
LIMIT %(most)s
