-- The free accessible seats of a section, and the other free seats in the rows of the best of them and in neighboring
-- rows.
WITH best AS (
    SELECT row_index
    FROM reservations_seatinventory
    WHERE section_id = %(section_id)s AND status = 0 AND accessible
      AND (%(category_ids)s::bigint[] = '{}' OR category_id = ANY(%(category_ids)s::bigint[]))
    ORDER BY rank
    LIMIT %(limit)s
)
SELECT seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion
FROM reservations_seatinventory
WHERE section_id = %(section_id)s AND status = 0
  AND (%(category_ids)s::bigint[] = '{}' OR category_id = ANY(%(category_ids)s::bigint[]))
  AND (accessible OR row_index IN (SELECT row_index + step FROM best CROSS JOIN generate_series(-2, 2) AS step))
ORDER BY rank
