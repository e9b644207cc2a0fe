-- The priority entries of an event, with the numbers that they have or drew.
SELECT entry.id, coalesce(entry.number, drawn.number)
FROM queue_queueentry AS entry
LEFT JOIN queue_drawnplace AS drawn ON drawn.entry_id = entry.id AND entry.number IS NULL
WHERE entry.event_id = %(event_id)s AND entry.marked <> ''
