-- The available and held seats and tickets of each of these events, in one snapshot.
SELECT asked.event_id,
       coalesce(seats.available, 0) + coalesce(general.available, 0),
       coalesce(seats.held, 0) + coalesce(general.held, 0)
FROM unnest(%(event_ids)s::bigint[]) AS asked (event_id)
LEFT JOIN (
    SELECT event_id, count(*) FILTER (WHERE status = 0) AS available, count(*) FILTER (WHERE status = 1) AS held
    FROM reservations_seatinventory
    WHERE event_id = ANY(%(event_ids)s::bigint[]) AND status IN (0, 1)
    GROUP BY event_id
) AS seats ON seats.event_id = asked.event_id
LEFT JOIN (
    SELECT row.event_id,
           sum(row.capacity - row.blocked - row.taken)::bigint AS available,
           sum(row.taken - coalesce(sold.quantity, 0))::bigint AS held
    FROM reservations_generaladmissioninventory AS row
    LEFT JOIN LATERAL (
        SELECT sum(line.quantity) AS quantity
        FROM reservations_reservationline AS line
        JOIN reservations_reservation AS reservation ON reservation.id = line.reservation_id
        WHERE row.taken > 0
          AND line.section_id = row.section_id
          AND line.live
          AND line.seat_id IS NULL
          AND reservation.status = 'confirmed'
    ) AS sold ON true
    WHERE row.event_id = ANY(%(event_ids)s::bigint[])
    GROUP BY row.event_id
) AS general ON general.event_id = asked.event_id
