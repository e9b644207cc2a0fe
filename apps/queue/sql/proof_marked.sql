-- The numbers of priority entries, and the reason of each.
SELECT number, marked
FROM queue_queueentry
WHERE event_id = %(event_id)s AND marked <> '' AND number > %(after)s
ORDER BY number
LIMIT %(most)s
