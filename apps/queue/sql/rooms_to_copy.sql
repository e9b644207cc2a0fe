-- The rooms that visitors may be polling: lobbies, and rooms with waiting entries or entries that the draw is
-- numbering. The second column is true for a lobby. (The lowest number instead of EXISTS: see lowest_waiting.sql.)
SELECT event_id, state = 'lobby'
FROM queue_waitingroom AS room
WHERE state = 'lobby'
   OR (
     state NOT IN ('off', 'closed')
     AND (numbered_through IS NOT NULL OR (
       SELECT min(number)
       FROM queue_queueentry AS entry
       WHERE entry.event_id = room.event_id AND entry.status = 'waiting'
     ) IS NOT NULL)
   )
ORDER BY event_id
