-- The events in which this browser has a live entry as a guest. Each room is looked up separately, because the index of
-- entries begins with the event.
SELECT room.event_id
FROM queue_waitingroom AS room
WHERE EXISTS (
    SELECT
    FROM queue_queueentry AS entry
    WHERE entry.event_id = room.event_id
      AND entry.visitor_id = %(visitor_id)s
      AND entry.account_id IS NULL
      AND entry.status IN ('waiting', 'review', 'ready', 'away')
)
ORDER BY room.event_id
