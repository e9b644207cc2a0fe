-- The first number whose entry is not the one that drew it.
SELECT place.number
FROM queue_drawnplace AS place
LEFT JOIN queue_queueentry AS entry ON entry.id = place.entry_id AND entry.event_id = place.event_id
WHERE place.event_id = %(event_id)s AND entry.number IS DISTINCT FROM place.number
ORDER BY place.number
LIMIT 1
