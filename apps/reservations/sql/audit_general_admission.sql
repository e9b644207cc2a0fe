-- I1, I3 and I10 for one general-admission section in one statement: the capacity equals the published one; `taken`
-- equals the sum of the live lines and is not negative; taken and blocked do not exceed the capacity; house tickets are
-- among the blocked. Returns no row if there is no error. With %(lines_max)s, the lines of a section that has as many or
-- more are not summed: `taken` then counts as right.
SELECT section.event_id, section.slug, section.capacity, row.capacity, row.blocked, row.house, row.taken,
       CASE WHEN lines.count >= %(lines_max)s::bigint THEN row.taken ELSE coalesce(lines.quantity, 0) END, row.event_id
FROM events_section AS section
LEFT JOIN reservations_generaladmissioninventory AS row ON row.section_id = section.id
LEFT JOIN LATERAL (
    SELECT sum(summed.quantity) AS quantity, count(*) AS count
    FROM (
        SELECT quantity
        FROM reservations_reservationline
        WHERE section_id = section.id AND seat_id IS NULL AND live
        LIMIT %(lines_max)s::bigint
    ) AS summed
) AS lines ON true
WHERE section.id = %(section_id)s
  AND (row.section_id IS NULL
       OR row.event_id <> section.event_id
       OR row.capacity <> section.capacity
       OR (row.taken <> coalesce(lines.quantity, 0)
           AND (%(lines_max)s::bigint IS NULL OR lines.count < %(lines_max)s::bigint))
       OR row.taken < 0
       OR row.blocked < 0
       OR row.house NOT BETWEEN 0 AND row.blocked
       OR row.taken + row.blocked > row.capacity)
