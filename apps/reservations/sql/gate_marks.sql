-- The entries of holds of these events (ids as text) whose response was stored after a given time, each with its event,
-- oldest first: one page, with all rows of its last time. A stored response names the buyer, but a mark the entry,
-- which is found by the reservation's id in the response.
SELECT answer.created_at, split_part(answer.scope, ':', 2), reservation.entry_id
FROM kernel_idempotentanswer AS answer
JOIN reservations_reservation AS reservation ON reservation.id = (answer.answer::jsonb ->> 'reservation_id')::uuid
WHERE answer.created_at > %(after)s
  AND starts_with(answer.scope, 'hold:')
  AND split_part(answer.scope, ':', 2) = ANY(%(event_ids)s::text[])
ORDER BY answer.created_at
FETCH FIRST %(most)s ROWS WITH TIES
