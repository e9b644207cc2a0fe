-- The rooms in which somebody may be asking how it goes: a lobby, and those of these events whose room is not off.
SELECT event_id
FROM queue_waitingroom
WHERE state = 'lobby' OR (state <> 'off' AND event_id = ANY(%(event_ids)s::bigint[]))
ORDER BY event_id
