-- The entries of the event whose holds were remembered after a moment, oldest first, a page with all that share its
-- last moment.
SELECT answer.created_at, answer.entry_id
FROM (
    SELECT created_at, CASE WHEN scope LIKE 'hold:%%' THEN substr(scope, 6)::uuid END AS entry_id
    FROM kernel_idempotentanswer
    WHERE created_at > %(after)s
) AS answer
WHERE EXISTS (
    SELECT FROM reservations_reservation AS reservation
    WHERE reservation.entry_id = answer.entry_id AND reservation.event_id = %(event_id)s
)
ORDER BY answer.created_at
FETCH FIRST %(most)s ROWS WITH TIES
