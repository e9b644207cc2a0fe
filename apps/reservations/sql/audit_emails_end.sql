-- The last e-mail address of the next batch of at most %(limit)s live and confirmed reservations; no row at the end.
SELECT piece.email
FROM (
    SELECT email
    FROM reservations_reservation
    WHERE event_id = %(event_id)s
      AND email > %(after)s
      AND email <> ''
      AND status IN ('pending_payment', 'paying', 'confirmed')
    ORDER BY email
    LIMIT %(limit)s
) AS piece
ORDER BY piece.email DESC
LIMIT 1
