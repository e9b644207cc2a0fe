-- The rooms that may need a tick: those that have yet to open, and those with waiting entries. Entries in the lobby
-- have no number and are not in the queue yet. The last column is true if a lobby is due to open. (The lowest number
-- instead of EXISTS: see lowest_waiting.sql.)
SELECT event_id, state, state = 'closed' AND lobby_opens_at IS NOT NULL AND lobby_opens_at <= clock_timestamp()
FROM queue_waitingroom AS room
WHERE state IN ('closed', 'lobby')
   OR (
     state IN ('open', 'off')
     AND (
       SELECT min(number)
       FROM queue_queueentry AS entry
       WHERE entry.event_id = room.event_id AND entry.status = 'waiting'
     ) IS NOT NULL
   )
ORDER BY event_id
