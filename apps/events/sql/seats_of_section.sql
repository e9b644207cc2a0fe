-- Seats of a section as the apps above see them, row by row, front first. The columns are those of `SeatView`.
SELECT seat.id, seat.guid, seat.section_id, section.slug, section.name, seat.row, seat.number,
       seat.category_id, category.key, category.name, category.color, category.price_minor,
       seat.accessible, seat.companion, category.tax_rate
FROM events_seat AS seat
JOIN events_section AS section ON section.id = seat.section_id
JOIN events_category AS category ON category.id = seat.category_id
WHERE seat.section_id = %(section_id)s::bigint
ORDER BY seat.row_index, seat.place_index
LIMIT %(limit)s OFFSET %(offset)s
