-- The entries whose holds of these events (their ids as text) were remembered after a moment, oldest first, a page with
-- all that share its last moment; and the event of each. Keys are the buyer's, marks the entry's: the answer says which
-- reservation it was, and that by which entry.
SELECT answer.created_at, split_part(answer.scope, ':', 2), reservation.entry_id
FROM kernel_idempotentanswer AS answer
JOIN reservations_reservation AS reservation ON reservation.id = (answer.answer::jsonb ->> 'reservation_id')::uuid
WHERE answer.created_at > %(after)s
  AND starts_with(answer.scope, 'hold:')
  AND split_part(answer.scope, ':', 2) = ANY(%(event_ids)s::text[])
ORDER BY answer.created_at
FETCH FIRST %(most)s ROWS WITH TIES
