-- The event's seats among these public ids.
SELECT seat.id, seat.guid, seat.section_id, section.slug, section.name, seat.row, seat.number,
       seat.category_id, category.key, category.name, category.color, category.price_minor,
       seat.accessible, seat.companion
FROM events_seat AS seat
JOIN events_section AS section ON section.id = seat.section_id
JOIN events_category AS category ON category.id = seat.category_id
WHERE seat.event_id = %(event_id)s AND seat.guid = ANY(%(guids)s::text[])
