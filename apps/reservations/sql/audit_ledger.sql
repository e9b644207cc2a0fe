-- I8: reservations whose ledger does not end in the state they are in, or that were confirmed without having been paid
-- for: every transition is a row, and only pending, paying or expired ones may become confirmed.
SELECT reservation.id, reservation.status, last.to_status, last.from_status
FROM reservations_reservation AS reservation
LEFT JOIN LATERAL (
    SELECT from_status, to_status
    FROM reservations_reservationtransition
    WHERE reservation_id = reservation.id
    ORDER BY id DESC
    LIMIT 1
) AS last ON true
WHERE reservation.event_id = %(event_id)s
  AND (last.to_status IS DISTINCT FROM reservation.status
       OR (reservation.status = 'confirmed'
           AND last.from_status NOT IN ('pending_payment', 'paying', 'expired')))
