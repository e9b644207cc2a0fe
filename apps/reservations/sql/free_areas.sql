-- How many seats are free in each area, and how many of them are accessible, read without locks: of areas listed one by
-- one, counted up to the limit; of whole sections, all of them. Named seats are listed one by one instead, those that are
-- free. Accessible and companion seats count only if wanted.
SELECT
    area.section_id,
    area.category_id,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM reservations_seatinventory AS seat
            WHERE seat.section_id = area.section_id AND seat.status = 0 AND seat.category_id = area.category_id
              AND (%(accessible)s::boolean OR NOT (seat.accessible OR seat.companion))
              AND seat.seat_id <> ALL(%(named_ids)s::bigint[])
            LIMIT %(limit)s
        ) AS free
    ),
    CASE WHEN %(accessible)s::boolean THEN (
        SELECT count(*)
        FROM (
            SELECT
            FROM reservations_seatinventory AS seat
            WHERE seat.section_id = area.section_id AND seat.status = 0 AND seat.category_id = area.category_id
              AND seat.accessible AND seat.seat_id <> ALL(%(named_ids)s::bigint[])
            LIMIT %(limit)s
        ) AS free
    ) ELSE 0 END,
    NULL::bigint AS seat_id
FROM unnest(%(section_ids)s::bigint[], %(category_ids)s::bigint[]) AS area (section_id, category_id)
UNION ALL
SELECT section_id, category_id, count(*), count(*) FILTER (WHERE accessible), NULL
FROM reservations_seatinventory
WHERE section_id = ANY(%(whole_section_ids)s::bigint[]) AND status = 0
  AND (%(accessible)s::boolean OR NOT (accessible OR companion))
  AND seat_id <> ALL(%(named_ids)s::bigint[])
GROUP BY section_id, category_id
UNION ALL
SELECT section_id, category_id, 1, accessible::integer, seat_id
FROM reservations_seatinventory
WHERE seat_id = ANY(%(named_ids)s::bigint[]) AND status = 0
  AND (%(accessible)s::boolean OR NOT (accessible OR companion))
