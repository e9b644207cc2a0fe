-- For each of these pairs of event and email address, the address's confirmed seats without one reservation.
SELECT given.position, coalesce(sum(reservation.seat_count), 0)
FROM unnest(%(event_ids)s::bigint[], %(emails)s::text[], %(apart_from)s::uuid[]) WITH ORDINALITY
    AS given (event_id, email, apart_from, position)
LEFT JOIN reservations_reservation AS reservation
    ON reservation.event_id = given.event_id
    AND reservation.email = given.email
    AND reservation.id <> given.apart_from
    AND reservation.status = 'confirmed'
GROUP BY given.position
ORDER BY given.position
