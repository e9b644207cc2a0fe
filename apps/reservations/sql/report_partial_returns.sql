-- For the report of a sale: tickets returned from reservations that stayed confirmed, of the event's reservations with
-- ids in a range, by time (the index of the point in time before which they were).
SELECT width_bucket(extract(epoch FROM line.returned_at - %(opens_at)s)::float8, %(edges)s::float8[]),
       count(*),
       sum(line.quantity)::bigint
FROM reservations_reservation AS reservation
JOIN reservations_reservationline AS line ON line.reservation_id = reservation.id
WHERE reservation.event_id = %(event_id)s AND reservation.id > %(after)s AND reservation.id <= %(until)s
  AND line.returned_at <= %(as_of)s
GROUP BY 1
