-- The last provider message of the next batch of at most %(limit)s after this one; no row: none is left.
SELECT piece.id
FROM (
    SELECT id
    FROM orders_providermessage
    WHERE id > %(after)s
    ORDER BY id
    LIMIT %(limit)s
) AS piece
ORDER BY piece.id DESC
LIMIT 1
