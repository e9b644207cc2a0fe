-- The named reservations and the account's newest ones, as far as they belong to one of these buyers, newest first, with
-- the deadline in force and the database's time.
SELECT reservation.id, reservation.event_id, reservation.status, reservation.seat_count,
       COALESCE(reservation.pay_deadline, reservation.expires_at),
       NOT EXISTS (
           SELECT FROM reservations_reservationline AS line
           WHERE line.reservation_id = reservation.id AND line.seat_id IS NULL
       ),
       clock_timestamp()
FROM reservations_reservation AS reservation
WHERE reservation.id IN (
    SELECT unnest(%(reservation_ids)s::uuid[])
    UNION
    (
        SELECT own.id
        FROM reservations_reservation AS own
        WHERE own.account_id = %(account_id)s AND own.account_id IS NOT NULL
        ORDER BY own.created_at DESC
        LIMIT %(newest)s
    )
)
  AND reservation.buyer = ANY(%(buyers)s::text[])
ORDER BY reservation.created_at DESC, reservation.id
