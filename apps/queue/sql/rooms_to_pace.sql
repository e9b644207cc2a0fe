-- The open rooms whose rate may need a step: the rate is reduced, entries wait, or visitors were admitted in the last
-- %(busy_seconds)s seconds. Those come first that have admitted visitors. With %(only_reduced)s, only those whose rate is
-- reduced.
SELECT room.event_id, used.is_in_use
FROM queue_waitingroom AS room
CROSS JOIN LATERAL (
    SELECT EXISTS (
      SELECT
      FROM queue_admissionbatch AS batch
      WHERE batch.event_id = room.event_id
        AND batch.at > (SELECT clock_timestamp()) - make_interval(secs => %(busy_seconds)s)
    ) AS is_in_use
) AS used
WHERE room.state = 'open'
  AND (
    room.rate_now IS NOT NULL
    OR NOT %(only_reduced)s AND (
      used.is_in_use
      OR EXISTS (SELECT FROM queue_queueentry AS entry WHERE entry.event_id = room.event_id AND entry.status = 'waiting')
    )
  )
ORDER BY used.is_in_use DESC, room.event_id
