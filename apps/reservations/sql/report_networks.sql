-- For the report of a sale: the buyers of the event's reservations with ids in a range, the network that each joined
-- from, as its entry keeps it (NULL: not recorded), and the tickets bought, including those returned later.
SELECT reservation.buyer, entry.network, sum(line.quantity)::bigint
FROM reservations_reservation AS reservation
JOIN reservations_reservationline AS line ON line.reservation_id = reservation.id
LEFT JOIN queue_queueentry AS entry ON entry.id = reservation.entry_id
WHERE reservation.event_id = %(event_id)s AND reservation.id > %(after)s AND reservation.id <= %(until)s
  AND reservation.confirmed_at <= %(as_of)s
GROUP BY 1, 2
