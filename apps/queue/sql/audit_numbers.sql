-- Entries whose number does not fit the room: never handed out, passed over by the head, or let in ahead of it.
SELECT entry.number, entry.status, room.head, room.next_number
FROM queue_queueentry AS entry
JOIN queue_waitingroom AS room ON room.event_id = entry.event_id
WHERE entry.event_id = %(event_id)s
  AND (
    entry.number >= room.next_number
    OR (entry.status = 'waiting' AND entry.ready_at IS NULL AND entry.number <= room.head)
    OR (entry.ready_at IS NOT NULL AND entry.number > room.head)
  )
ORDER BY entry.number
LIMIT 50
