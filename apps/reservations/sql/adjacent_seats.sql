-- Of the best free seats of a section that any buyer may have, of some categories or all: how many were examined, the most
-- of them side by side, and the seats in runs of a whole party, best run first; a row without a seat if there are none.
-- The buyer's own seats count as free. Read without locks.
WITH free AS (
    (
        SELECT seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion
        FROM reservations_seatinventory
        WHERE section_id = %(section_id)s AND status = 0 AND NOT accessible AND NOT companion
          AND (%(category_ids)s::bigint[] = '{}' OR category_id = ANY(%(category_ids)s::bigint[]))
          AND seat_id <> ALL(%(excluded_ids)s::bigint[])
        ORDER BY rank
        LIMIT %(examined_max)s
    )
    UNION ALL
    SELECT seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion
    FROM reservations_seatinventory
    WHERE seat_id = ANY(%(own_ids)s::bigint[]) AND NOT accessible AND NOT companion
), numbered AS (
    SELECT free.*, place_index - row_number() OVER (PARTITION BY row_index ORDER BY place_index) AS run
    FROM free
), sized AS MATERIALIZED (
    SELECT
        numbered.*,
        count(*) OVER (PARTITION BY row_index, run) AS size,
        min(rank) OVER (PARTITION BY row_index, run) AS best
    FROM numbered
)
SELECT examined.seats, examined.longest, chosen.*
FROM (SELECT count(*) AS seats, coalesce(max(size), 0) AS longest FROM sized) AS examined
LEFT JOIN LATERAL (
    SELECT seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion
    FROM sized
    WHERE size >= %(party)s
    ORDER BY best, row_index, run, place_index
    LIMIT %(limit)s
) AS chosen ON TRUE
