-- The entries whose responses to holds of these events (event ids as text) were stored after a given time, with the
-- event of each, oldest first: one page, with all rows of its last time. Stored responses name the buyer, but marks the
-- entry: the response has the reservation's id, and the reservation its entry.
SELECT answer.created_at, split_part(answer.scope, ':', 2), reservation.entry_id
FROM kernel_idempotentanswer AS answer
JOIN reservations_reservation AS reservation ON reservation.id = (answer.answer::jsonb ->> 'reservation_id')::uuid
WHERE answer.created_at > %(after)s
  AND starts_with(answer.scope, 'hold:')
  AND split_part(answer.scope, ':', 2) = ANY(%(event_ids)s::text[])
ORDER BY answer.created_at
FETCH FIRST %(most)s ROWS WITH TIES
