-- I1, I3 and I10 for these general-admission sections: the capacity equals the published one; `taken` equals the sum of the
-- live lines and is not negative; taken and blocked do not exceed the capacity; house tickets are among the blocked.
-- Returns a row for each section with an error. If a section has %(lines_max)s, one element for each, and as many lines or
-- more, they are not summed: `taken` then counts as right.
SELECT section.event_id, section.slug, section.capacity, row.capacity, row.blocked, row.house, row.taken,
       CASE WHEN lines.count >= given.lines_max THEN row.taken ELSE coalesce(lines.quantity, 0) END, row.event_id
FROM unnest(%(section_ids)s::bigint[], %(lines_max)s::bigint[]) AS given (section_id, lines_max)
JOIN events_section AS section ON section.id = given.section_id
LEFT JOIN reservations_generaladmissioninventory AS row ON row.section_id = section.id
LEFT JOIN LATERAL (
    SELECT sum(summed.quantity) AS quantity, count(*) AS count
    FROM (
        SELECT quantity
        FROM reservations_reservationline
        WHERE section_id = section.id AND seat_id IS NULL AND live
        LIMIT given.lines_max
    ) AS summed
) AS lines ON true
WHERE row.section_id IS NULL
   OR row.event_id <> section.event_id
   OR row.capacity <> section.capacity
   OR (row.taken <> coalesce(lines.quantity, 0) AND (given.lines_max IS NULL OR lines.count < given.lines_max))
   OR row.taken < 0
   OR row.blocked < 0
   OR row.house NOT BETWEEN 0 AND row.blocked
   OR row.taken + row.blocked > row.capacity
ORDER BY section.id
