-- The header of an event's proof in one snapshot: its room, its draw, and the counts of the other parts. The secret is
-- returned only after it is revealed.
SELECT clock_timestamp(),
       room.state,
       room.next_number,
       room.chain_head,
       room.lobby_count,
       room.head,
       (SELECT count(*) FROM queue_roomact AS act WHERE act.event_id = room.event_id),
       (SELECT count(*) FROM queue_admissionbatch AS batch WHERE batch.event_id = room.event_id),
       draw.statement,
       draw.commitment,
       draw.committed_at,
       draw.reveal_by,
       draw.frozen_at,
       draw.digest,
       draw.digest_at,
       CASE WHEN draw.revealed_at IS NOT NULL THEN draw.secret END,
       CASE WHEN draw.revealed_at IS NOT NULL THEN draw.beacon_value END,
       CASE WHEN draw.revealed_at IS NOT NULL THEN draw.beacon_signature END,
       CASE WHEN draw.revealed_at IS NOT NULL THEN draw.beacon_previous_signature END,
       draw.revealed_at,
       CASE WHEN draw.revealed_at IS NOT NULL THEN draw.seed END,
       draw.is_operator_proof,
       draw.drawn_at,
       draw.numbered_at
FROM queue_waitingroom AS room
LEFT JOIN queue_draw AS draw ON draw.event_id = room.event_id
WHERE room.event_id = %(event_id)s
