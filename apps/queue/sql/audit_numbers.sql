-- Entries whose number does not fit the room: it was never assigned; it is a lobby number, but the entry was not in the
-- lobby, or the reverse; or it is missing, although the entry was admitted. (A constraint requires a number outside the
-- lobby.) Also, except for priority entries: the head has passed it before the first admission, or the entry was
-- admitted ahead of the head.
SELECT entry.number, entry.status, room.head, room.next_number
FROM queue_queueentry AS entry
JOIN queue_waitingroom AS room ON room.event_id = entry.event_id
WHERE entry.event_id = %(event_id)s
  AND (
    entry.number >= room.next_number
    OR entry.in_lobby <> (entry.number <= room.lobby_count)
    OR (entry.number IS NULL AND entry.ready_at IS NOT NULL)
    OR (
      entry.marked = ''
      AND (
        (entry.status = 'waiting' AND entry.ready_at IS NULL AND entry.number <= room.head)
        OR (entry.ready_at IS NOT NULL AND entry.number > room.head)
      )
    )
  )
ORDER BY entry.number
LIMIT 50
