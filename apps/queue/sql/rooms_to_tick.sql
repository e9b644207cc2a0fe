-- The rooms that may need a tick: those that have yet to open, and those with waiting entries. Entries in the lobby
-- have no number and are not in the queue yet. The third column is true if a lobby is due to open, the last one if the
-- room can admit a visitor now, or has admitted any in the last %(lately_seconds)s seconds: its full slots may be over.
-- What the room can admit is read without its lock, as by a tick. (The lowest number instead of EXISTS: see
-- lowest_waiting.sql.)
SELECT
    event_id,
    state,
    state = 'closed' AND lobby_opens_at IS NOT NULL AND lobby_opens_at <= clock_timestamp(),
    CASE
      WHEN state <> 'open' THEN state = 'off'
      WHEN EXISTS (
        SELECT
        FROM queue_admissionbatch AS batch
        WHERE batch.event_id = room.event_id
          AND batch.at > (SELECT clock_timestamp()) - make_interval(secs => %(lately_seconds)s)
      ) THEN true
      WHEN budget + extract(epoch FROM clock_timestamp() - ticked_at) * coalesce(rate_now, rate_per_second) < 1 THEN false
      WHEN active_max <= (
        SELECT count(*) FROM queue_queueentry AS entry WHERE entry.event_id = room.event_id AND entry.status = 'ready'
      ) THEN false
      ELSE supply_available IS NULL OR supply_available > (
        SELECT count(*)
        FROM queue_queueentry AS entry
        WHERE entry.event_id = room.event_id AND entry.status = 'ready' AND entry.busy_until IS NULL
      )
    END
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
