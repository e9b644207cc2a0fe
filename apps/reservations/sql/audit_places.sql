-- I1, I3 and I10 for one general-admission section, at one moment: the capacity is what the public is told; taken is
-- what the live lines say, never negative, with what is blocked never above the capacity; what the house keeps is among
-- what is blocked. No row: all is well.
SELECT section.event_id, section.slug, section.capacity, row.capacity, row.blocked, row.house, row.taken,
       coalesce(lines.quantity, 0), row.event_id
FROM events_section AS section
LEFT JOIN reservations_generaladmissioninventory AS row ON row.section_id = section.id
LEFT JOIN LATERAL (
    SELECT sum(quantity) AS quantity
    FROM reservations_reservationline
    WHERE section_id = section.id AND seat_id IS NULL AND live
) AS lines ON true
WHERE section.id = %(section_id)s
  AND (row.section_id IS NULL
       OR row.event_id <> section.event_id
       OR row.capacity <> section.capacity
       OR row.taken <> coalesce(lines.quantity, 0)
       OR row.taken < 0
       OR row.blocked < 0
       OR row.house NOT BETWEEN 0 AND row.blocked
       OR row.taken + row.blocked > row.capacity)
