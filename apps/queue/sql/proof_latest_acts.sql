-- The latest operations on a room, latest first, without operators and reasons.
SELECT at, what, detail, who = %(system)s, refusal <> ''
FROM queue_roomact
WHERE event_id = %(event_id)s
ORDER BY id DESC
LIMIT %(most)s
