-- The best free accessible seats of a section, and the best of its other free seats: those in the rows of the first
-- accessible ones and in neighboring rows, or in any row without %(near)s.
WITH best AS (
    SELECT seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion
    FROM reservations_seatinventory
    WHERE section_id = %(section_id)s AND status = 0 AND accessible
      AND (%(category_ids)s::bigint[] = '{}' OR category_id = ANY(%(category_ids)s::bigint[]))
    ORDER BY rank
    LIMIT %(limit)s
), near AS (
    SELECT row_index + step AS row_index
    FROM (SELECT row_index FROM best ORDER BY rank LIMIT %(near)s) AS first
    CROSS JOIN generate_series(-2, 2) AS step
), others AS (
    SELECT seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion
    FROM reservations_seatinventory
    WHERE section_id = %(section_id)s AND status = 0 AND NOT accessible
      AND (%(category_ids)s::bigint[] = '{}' OR category_id = ANY(%(category_ids)s::bigint[]))
      AND (%(near)s::int IS NULL OR row_index IN (SELECT row_index FROM near))
    ORDER BY rank
    LIMIT %(others_max)s
)
SELECT seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion FROM best
UNION ALL
SELECT seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion FROM others
