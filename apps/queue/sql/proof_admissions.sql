-- A room's admissions in order.
SELECT id, at, reason, from_number, to_number, count
FROM queue_admissionbatch
WHERE event_id = %(event_id)s AND id > %(after)s
ORDER BY id
LIMIT %(most)s
