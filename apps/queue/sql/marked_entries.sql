-- The priority entries of an event and, newest first, up to %(most)s of those in review, with the numbers that they have
-- or drew. Entries in review that have no number yet are left out: until the draw, they wait like the others.
SELECT entry.id, coalesce(entry.number, drawn.number), true
FROM queue_queueentry AS entry
LEFT JOIN queue_drawnplace AS drawn ON drawn.entry_id = entry.id AND entry.number IS NULL
WHERE entry.event_id = %(event_id)s AND entry.marked <> ''
UNION ALL
(
    SELECT entry.id, coalesce(entry.number, drawn.number), false
    FROM queue_queueentry AS entry
    LEFT JOIN queue_drawnplace AS drawn ON drawn.entry_id = entry.id AND entry.number IS NULL
    WHERE entry.event_id = %(event_id)s
      AND entry.status = 'review'
      AND (entry.number IS NOT NULL OR drawn.number IS NOT NULL)
    ORDER BY entry.joined_at DESC
    LIMIT %(most)s
)
