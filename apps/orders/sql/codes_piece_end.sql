-- The last promo code of the next batch of at most %(limit)s after this one, by id; no row: none is left.
SELECT piece.id
FROM (
    SELECT id
    FROM orders_promocode
    WHERE id > %(after)s
    ORDER BY id
    LIMIT %(limit)s
) AS piece
ORDER BY piece.id DESC
LIMIT 1
