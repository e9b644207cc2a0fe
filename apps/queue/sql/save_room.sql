-- Saves all fields of a room. The caller holds its lock and has read it under that lock.
UPDATE queue_waitingroom
SET state = %(state)s,
    rate_per_second = %(rate_per_second)s,
    rate_floor = %(rate_floor)s,
    rate_now = %(rate_now)s,
    active_max = %(active_max)s,
    claim_seconds = %(claim_seconds)s,
    admission_seconds = %(admission_seconds)s,
    next_number = %(next_number)s,
    head = %(head)s,
    epoch = %(epoch)s,
    ticked_at = %(ticked_at)s,
    budget = %(budget)s,
    supply_available = %(supply_available)s,
    supply_held = %(supply_held)s,
    supply_at = %(supply_at)s,
    message = %(message)s,
    message_at = %(message_at)s,
    chain_head = %(chain_head)s,
    lobby_opens_at = %(lobby_opens_at)s,
    lobby_count = %(lobby_count)s,
    numbered_through = %(numbered_through)s
WHERE event_id = %(event_id)s
