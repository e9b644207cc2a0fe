-- The last seat of the next batch of at most %(limit)s seats after this one; no row at the end.
SELECT piece.seat_id
FROM (
    SELECT seat_id
    FROM reservations_seatinventory
    WHERE seat_id > %(after)s
    ORDER BY seat_id
    LIMIT %(limit)s
) AS piece
ORDER BY piece.seat_id DESC
LIMIT 1
