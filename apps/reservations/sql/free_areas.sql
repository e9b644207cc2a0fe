-- How many seats of each of these sections and categories are free, counted up to the limit, read without locks.
SELECT area.section_id, area.category_id, (
    SELECT count(*)
    FROM (
        SELECT
        FROM reservations_seatinventory AS seat
        WHERE seat.section_id = area.section_id AND seat.status = 0 AND seat.category_id = area.category_id
        LIMIT %(limit)s
    ) AS free
)
FROM unnest(%(section_ids)s::bigint[], %(category_ids)s::bigint[]) AS area (section_id, category_id)
