-- For the report of a sale: the buyers of the event's reservations with ids in a range, whether each has an account,
-- and the tickets that they bought, including those returned later. An erased buyer's key still says whether it had one.
SELECT reservation.buyer,
       reservation.account_id IS NOT NULL OR starts_with(reservation.buyer, 'visitor:erased-account-'),
       sum(line.quantity)::bigint
FROM reservations_reservation AS reservation
JOIN reservations_reservationline AS line ON line.reservation_id = reservation.id
WHERE reservation.event_id = %(event_id)s AND reservation.id > %(after)s AND reservation.id <= %(until)s
  AND reservation.confirmed_at <= %(as_of)s
GROUP BY 1, 2
