-- The room, if more are active than it may have and somebody was admitted since it last became so: a cap that an
-- operator lowered, or a room switched on, is reached by admitting nobody until there is room.
SELECT active.count, room.active_max
FROM queue_waitingroom AS room
CROSS JOIN LATERAL (
    SELECT count(*) AS count, max(ready_at) AS last
    FROM queue_queueentry AS entry
    WHERE entry.event_id = room.event_id AND entry.status = 'ready'
) AS active
WHERE room.event_id = %(event_id)s
  AND room.state <> 'off'
  AND active.count > room.active_max
  AND active.last > coalesce(
    (SELECT max(at) FROM queue_roomact AS act WHERE act.event_id = room.event_id AND act.what IN ('state', 'limits')),
    '-infinity'
  )
