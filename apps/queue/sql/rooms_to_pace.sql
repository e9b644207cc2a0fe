-- The open rooms whose rate may need a step: the rate is reduced, entries wait, or visitors were admitted in the last
-- %(busy_seconds)s seconds.
SELECT event_id
FROM queue_waitingroom AS room
WHERE state = 'open'
  AND (
    rate_now IS NOT NULL
    OR EXISTS (
      SELECT FROM queue_queueentry AS entry WHERE entry.event_id = room.event_id AND entry.status = 'waiting'
    )
    OR EXISTS (
      SELECT
      FROM queue_admissionbatch AS batch
      WHERE batch.event_id = room.event_id
        AND batch.at > clock_timestamp() - make_interval(secs => %(busy_seconds)s)
    )
  )
ORDER BY event_id
