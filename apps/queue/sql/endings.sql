-- Up to %(most)s entries that ended after this time and id, in that order, with the numbers that they have or drew.
SELECT entry.ended_at, entry.id, coalesce(entry.number, drawn.number)
FROM queue_queueentry AS entry
LEFT JOIN queue_drawnplace AS drawn ON drawn.entry_id = entry.id AND entry.number IS NULL
WHERE entry.event_id = %(event_id)s
  AND entry.ended_at >= %(since)s
  AND (entry.ended_at, entry.id) > (%(since)s, %(since_id)s)
ORDER BY entry.ended_at, entry.id
LIMIT %(most)s
