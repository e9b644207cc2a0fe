-- The room, if more shoppers are active than its cap and one was admitted after the last change of its state or limits.
-- (After a cap is lowered or a room is switched on, more may be active; no visitor is admitted until fewer are.)
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
    (
        SELECT max(at)
        FROM queue_roomact AS act
        WHERE act.event_id = room.event_id AND act.what IN ('state', 'limits') AND act.refusal = ''
    ),
    '-infinity'
  )
