-- The numbers that were let through ahead of their turn, and by what.
SELECT number, marked
FROM queue_queueentry
WHERE event_id = %(event_id)s AND marked <> '' AND number > %(after)s
ORDER BY number
LIMIT %(most)s
