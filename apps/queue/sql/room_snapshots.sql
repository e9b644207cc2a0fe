-- The public state of these events' rooms in one snapshot, with its time, and the recent use of their slots, which gives
-- the estimates. It is observed from the last admission before the last %(window_seconds)s seconds on if the room was full
-- then, else from the first admission in this time. (The start of this time is a subquery, so that the index is used.)
SELECT room.event_id,
       clock_timestamp(),
       room.state,
       room.head,
       room.next_number,
       coalesce(room.rate_now, room.rate_per_second),
       room.rate_per_second,
       slots.active,
       recent.admitted + coalesce(start.active_count, slots.active) - slots.active,
       coalesce(extract(epoch FROM clock_timestamp() - start.at), 0)::float8,
       coalesce(start.active_count, slots.active),
       recent.in_turn,
       room.head - coalesce(start.to_number, room.head),
       coalesce(extract(epoch FROM clock_timestamp() - opening.at), 0)::float8,
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
    SELECT count(*) AS active
    FROM queue_queueentry AS entry
    WHERE entry.event_id = room.event_id AND entry.status = 'ready'
) AS slots
CROSS JOIN LATERAL (
    SELECT min(batch.at) AS at
    FROM queue_admissionbatch AS batch
    WHERE batch.event_id = room.event_id
) AS opening
LEFT JOIN LATERAL (
    SELECT either.at, either.active_count, either.to_number
    FROM (
        SELECT before.at, before.active_count, before.to_number
        FROM (
            SELECT batch.at, batch.active_count, batch.active_max, batch.to_number
            FROM queue_admissionbatch AS batch
            WHERE batch.event_id = room.event_id
              AND batch.reason <> 'marked'
              AND batch.at <= (SELECT clock_timestamp() - make_interval(secs => %(window_seconds)s))
            ORDER BY batch.at DESC
            LIMIT 1
        ) AS before
        WHERE before.active_count >= before.active_max
        UNION ALL
        (
            SELECT batch.at, batch.active_count, batch.to_number
            FROM queue_admissionbatch AS batch
            WHERE batch.event_id = room.event_id
              AND batch.reason <> 'marked'
              AND batch.at > (SELECT clock_timestamp() - make_interval(secs => %(window_seconds)s))
            ORDER BY batch.at
            LIMIT 1
        )
    ) AS either
    ORDER BY either.at
    LIMIT 1
) AS start ON true
CROSS JOIN LATERAL (
    SELECT coalesce(sum(batch.count), 0)::bigint AS admitted,
           coalesce(sum(batch.count) FILTER (WHERE batch.reason <> 'marked'), 0)::bigint AS in_turn
    FROM queue_admissionbatch AS batch
    WHERE batch.event_id = room.event_id AND batch.at > start.at
) AS recent
WHERE room.event_id = ANY(%(event_ids)s::bigint[])
