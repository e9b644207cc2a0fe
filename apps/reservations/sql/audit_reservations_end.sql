-- The last reservation of the next batch of at most %(limit)s reservations after this one; no row at the end.
SELECT piece.id
FROM (
    SELECT id
    FROM reservations_reservation
    WHERE id > %(after)s
    ORDER BY id
    LIMIT %(limit)s
) AS piece
ORDER BY piece.id DESC
LIMIT 1
