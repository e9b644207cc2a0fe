-- Records the stock released by a sweep, one row per section.
INSERT INTO reservations_cleanuplog
    (section_id, general_admission_released, seats_released, reservations_affected, duration_ms, swept_by, swept_at)
SELECT section_id, tickets, seats, reservations, %(duration_ms)s, %(swept_by)s, %(now)s
FROM unnest(%(section_ids)s::bigint[], %(tickets)s::int[], %(seats)s::int[], %(reservations)s::int[])
    AS given (section_id, tickets, seats, reservations)
