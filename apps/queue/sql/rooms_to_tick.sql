-- The rooms that may need a tick: those that have yet to open, and those with waiting entries. Entries in the lobby
-- have no number and are not in the queue yet. The third column is true if a lobby is due to open, the last one if the
-- room has admitted visitors in the last %(lately_seconds)s seconds. (The lowest number instead of EXISTS: see
-- lowest_waiting.sql.)
SELECT
    event_id,
    state,
    state = 'closed' AND lobby_opens_at IS NOT NULL AND lobby_opens_at <= clock_timestamp(),
    EXISTS (
      SELECT
      FROM queue_admissionbatch AS batch
      WHERE batch.event_id = room.event_id
        AND batch.at > (SELECT clock_timestamp()) - make_interval(secs => %(lately_seconds)s)
    )
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
