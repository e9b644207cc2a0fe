-- For each of these sections and categories: how many ordinary seats are free, and the most of them side by side, read
-- without locks, section after section until the limit. With `spans` for each section: seats of several of these
-- categories may then be side by side.
WITH free AS (
    SELECT found.*
    FROM unnest(%(section_ids)s::bigint[]) AS section (id)
    CROSS JOIN LATERAL (
        SELECT
            section_id,
            CASE WHEN %(spans)s::boolean THEN 0 ELSE category_id END AS category_id,
            row_index,
            place_index
        FROM reservations_seatinventory
        WHERE section_id = section.id AND status = 0 AND category_id = ANY(%(category_ids)s::bigint[])
          AND NOT (accessible OR companion) AND seat_id <> ALL(%(excluded_ids)s::bigint[])
        ORDER BY rank
        LIMIT %(limit)s
    ) AS found
    LIMIT %(limit)s
), numbered AS (
    SELECT
        section_id,
        category_id,
        row_index,
        place_index - row_number() OVER (PARTITION BY section_id, category_id, row_index ORDER BY place_index) AS run
    FROM free
), runs AS (
    SELECT section_id, category_id, count(*) AS size
    FROM numbered
    GROUP BY section_id, category_id, row_index, run
)
SELECT section_id, category_id, sum(size)::bigint, max(size)
FROM runs
GROUP BY section_id, category_id
