-- I8: reservations of this batch whose ledger does not end in their status, has a gap, or has an invalid transition:
-- confirmed comes only after pending, paying, expired or confirmed (a partial return), and canceled is final.
WITH step AS (
    SELECT reservation_id,
           from_status,
           to_status,
           coalesce(lag(to_status) OVER story, '') AS stood,
           lead(id) OVER story IS NULL AS is_last
    FROM reservations_reservationtransition
    WHERE reservation_id > %(after)s AND reservation_id <= %(until)s
    WINDOW story AS (PARTITION BY reservation_id ORDER BY id)
)
SELECT reservation.event_id, reservation.id, reservation.status, step.from_status, step.to_status, step.stood,
       step.is_last
FROM (SELECT id, event_id, status
      FROM reservations_reservation
      WHERE id > %(after)s
        AND id <= %(until)s
        AND (%(event_id)s::bigint IS NULL OR event_id = %(event_id)s)) AS reservation
LEFT JOIN step ON step.reservation_id = reservation.id
WHERE step.reservation_id IS NULL
   OR (step.is_last AND step.to_status <> reservation.status)
   OR step.from_status <> step.stood
   OR (step.from_status, step.to_status) NOT IN (
       ('', 'pending_payment'),
       ('pending_payment', 'paying'), ('pending_payment', 'confirmed'),
       ('pending_payment', 'canceled'), ('pending_payment', 'expired'),
       ('paying', 'confirmed'), ('paying', 'canceled'), ('paying', 'expired'),
       ('confirmed', 'confirmed'), ('confirmed', 'canceled'),
       ('expired', 'confirmed')
   )
