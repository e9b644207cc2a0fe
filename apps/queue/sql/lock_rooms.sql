-- Locks the rooms of these events in id order and returns their state under the lock.
SELECT event_id, state, rate_per_second, rate_floor, rate_now, active_max, claim_seconds, admission_seconds,
       next_number, head, epoch, ticked_at, budget, supply_available, supply_held, supply_at, message, message_at,
       chain_head, lobby_opens_at, lobby_count, numbered_through, network_key
FROM queue_waitingroom
WHERE event_id = ANY(%(event_ids)s::bigint[])
ORDER BY event_id
FOR NO KEY UPDATE
