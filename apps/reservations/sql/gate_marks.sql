-- The entries whose responses to holds of these events (event ids as text) were stored after a given time, oldest
-- first, one page including all with its last time; and the event of each. Keys contain the buyer, marks the entry: the
-- response names the reservation, and that its entry.
SELECT answer.created_at, split_part(answer.scope, ':', 2), reservation.entry_id
FROM kernel_idempotentanswer AS answer
JOIN reservations_reservation AS reservation ON reservation.id = (answer.answer::jsonb ->> 'reservation_id')::uuid
WHERE answer.created_at > %(after)s
  AND starts_with(answer.scope, 'hold:')
  AND split_part(answer.scope, ':', 2) = ANY(%(event_ids)s::text[])
ORDER BY answer.created_at
FETCH FIRST %(most)s ROWS WITH TIES
