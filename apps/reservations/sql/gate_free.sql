-- The free seats or tickets of each section, and the snapshot with which they were counted: one statement, so that the
-- snapshot says of every transaction whether the counts include it.
SELECT asked.section_id, coalesce(seats.free, general.capacity - general.blocked - general.taken, 0),
       pg_current_snapshot()::text
FROM unnest(%(section_ids)s::bigint[]) AS asked (section_id)
LEFT JOIN (
    SELECT section_id, count(*) AS free
    FROM reservations_seatinventory
    WHERE section_id = ANY(%(section_ids)s::bigint[]) AND status = 0
    GROUP BY section_id
) AS seats ON seats.section_id = asked.section_id
LEFT JOIN reservations_generaladmissioninventory AS general ON general.section_id = asked.section_id
