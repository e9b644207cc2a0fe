-- For the report of a sale: the changes of status of the event's reservations with ids in a range, by time (the index
-- of the point in time before which they were), with their tickets: all that were held, and those not returned before.
SELECT width_bucket(extract(epoch FROM step.at - %(opens_at)s)::float8, %(edges)s::float8[]),
       step.from_status,
       step.to_status,
       count(*),
       sum(held.tickets)::bigint,
       sum(held.tickets - held.returned)::bigint
FROM reservations_reservation AS reservation
JOIN reservations_reservationtransition AS step ON step.reservation_id = reservation.id
CROSS JOIN LATERAL (
    SELECT sum(line.quantity) AS tickets,
           coalesce(sum(line.quantity) FILTER (WHERE line.returned_at IS NOT NULL), 0) AS returned
    FROM reservations_reservationline AS line
    WHERE line.reservation_id = reservation.id
) AS held
WHERE reservation.event_id = %(event_id)s AND reservation.id > %(after)s AND reservation.id <= %(until)s
  AND step.at <= %(as_of)s
  AND step.from_status <> step.to_status
GROUP BY 1, 2, 3
