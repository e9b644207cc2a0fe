-- The best free seats of a section that any buyer may have, of some categories or all, read without locks; a choice among
-- them is locked afterwards.
SELECT seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion
FROM reservations_seatinventory
WHERE section_id = %(section_id)s AND status = 0 AND NOT accessible AND NOT companion
  AND (%(category_ids)s::bigint[] = '{}' OR category_id = ANY(%(category_ids)s::bigint[]))
ORDER BY rank
LIMIT %(limit)s
