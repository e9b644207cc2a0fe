-- The public state of these events' rooms in one snapshot, with its time. The admissions of the last %(window_seconds)s
-- seconds give the measured rate. (The start of this time is a subquery, so that the index is used.)
SELECT room.event_id,
       clock_timestamp(),
       room.state,
       room.head,
       room.next_number,
       coalesce(room.rate_now, room.rate_per_second),
       room.rate_per_second,
       recent.count,
       recent.seconds,
       room.active_max,
       room.claim_seconds,
       room.admission_seconds,
       room.supply_available,
       room.supply_held,
       room.message,
       room.message_at,
       room.lobby_count,
       draw.frozen_at IS NOT NULL,
       draw.drawn_at IS NOT NULL,
       encode(room.chain_head, 'hex'),
       room.epoch
FROM queue_waitingroom AS room
LEFT JOIN queue_draw AS draw ON draw.event_id = room.event_id
CROSS JOIN LATERAL (
    SELECT coalesce(sum(batch.count), 0)::bigint AS count,
           coalesce(extract(epoch FROM clock_timestamp() - min(batch.at)), 0)::float8 AS seconds
    FROM queue_admissionbatch AS batch
    WHERE batch.event_id = room.event_id
      AND batch.at > (SELECT clock_timestamp() - make_interval(secs => %(window_seconds)s))
) AS recent
WHERE room.event_id = ANY(%(event_ids)s::bigint[])
