-- The last access code of the next batch of at most %(limit)s codes after this one, in id order; no row at the end.
SELECT piece.id
FROM (
    SELECT id
    FROM reservations_accesscode
    WHERE id > %(after)s
    ORDER BY id
    LIMIT %(limit)s
) AS piece
ORDER BY piece.id DESC
LIMIT 1
