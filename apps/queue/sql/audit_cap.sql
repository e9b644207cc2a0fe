-- The room, if more shoppers are active than its cap and one was admitted since: a lowered cap, or a room switched on,
-- is reached by admitting no visitor until the number is below it.
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
