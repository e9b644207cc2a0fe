-- Seats as the apps above see them: of a section row by row, front first; of an event by public id; or by id. Unused
-- filters are null.
SELECT seat.id, seat.guid, seat.section_id, section.slug, section.name, seat.row, seat.number,
       seat.category_id, category.key, category.name, category.color, category.price_minor,
       seat.accessible, seat.companion, category.tax_rate
FROM events_seat AS seat
JOIN events_section AS section ON section.id = seat.section_id
JOIN events_category AS category ON category.id = seat.category_id
WHERE (%(section_id)s::bigint IS NULL OR seat.section_id = %(section_id)s)
  AND (%(event_id)s::bigint IS NULL OR seat.event_id = %(event_id)s)
  AND (%(guids)s::text[] IS NULL OR seat.guid = ANY(%(guids)s::text[]))
  AND (%(seat_ids)s::bigint[] IS NULL OR seat.id = ANY(%(seat_ids)s::bigint[]))
ORDER BY seat.section_id, seat.row_index, seat.place_index
LIMIT %(limit)s OFFSET %(offset)s
