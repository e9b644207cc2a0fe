-- Draws that have begun and not ended, oldest first, each with its room's state and the time of the read.
SELECT draw.statement, draw.secret, draw.reveal_by, draw.digest, draw.digest_at, draw.beacon_value, draw.revealed_at,
       draw.seed, draw.drawn_at, clock_timestamp(), draw.event_id, room.lobby_count, room.numbered_through
FROM queue_draw AS draw
JOIN queue_waitingroom AS room ON room.event_id = draw.event_id
WHERE draw.frozen_at IS NOT NULL AND draw.numbered_at IS NULL
ORDER BY draw.frozen_at, draw.event_id
