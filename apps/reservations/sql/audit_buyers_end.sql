-- The last buyer of the next batch of at most %(limit)s live and confirmed reservations after this one; no row at the
-- end.
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
