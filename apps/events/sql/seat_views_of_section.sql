-- The section's seats row by row, front first.
SELECT seat.id, seat.guid, seat.section_id, section.slug, section.name, seat.row, seat.number,
       seat.category_id, category.key, category.name, category.color, category.price_minor,
       seat.accessible, seat.companion
FROM events_seat AS seat
JOIN events_section AS section ON section.id = seat.section_id
JOIN events_category AS category ON category.id = seat.category_id
WHERE seat.section_id = %(section_id)s
ORDER BY seat.row_index, seat.place_index
LIMIT %(limit)s OFFSET %(offset)s
