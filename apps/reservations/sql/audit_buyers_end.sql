-- The last buyer of the next piece: after this one, at most %(limit)s standing reservations; no row: none is left.
SELECT piece.buyer
FROM (
    SELECT buyer
    FROM reservations_reservation
    WHERE event_id = %(event_id)s
      AND buyer > %(after)s
      AND status IN ('pending_payment', 'paying', 'confirmed')
    ORDER BY buyer
    LIMIT %(limit)s
) AS piece
ORDER BY piece.buyer DESC
LIMIT 1
