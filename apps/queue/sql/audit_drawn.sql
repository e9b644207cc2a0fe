-- Drawn numbers whose entry has another number, or has none although the draw has ended.
SELECT place.number, entry.number
FROM queue_drawnplace AS place
JOIN queue_draw AS draw ON draw.event_id = place.event_id
LEFT JOIN queue_queueentry AS entry ON entry.id = place.entry_id
WHERE place.event_id = %(event_id)s
  AND entry.number IS DISTINCT FROM place.number
  AND (entry.number IS NOT NULL OR entry.id IS NULL OR draw.numbered_at IS NOT NULL)
ORDER BY place.number
LIMIT 50
