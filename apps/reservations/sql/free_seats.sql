-- The best free seats of a section, unlocked: the choice is made from this, then only the choice is locked.
SELECT seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion
FROM reservations_seatinventory
WHERE section_id = %(section_id)s AND status = 0
ORDER BY rank
LIMIT %(limit)s
