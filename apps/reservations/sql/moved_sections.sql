-- The changes since given ids of the ledger and of the inventory log (none if these are NULL), in one row: the changed
-- sections; the sections and ids of the changed reservations, of at most %(most)s ledger entries; the number of these
-- entries; the last assigned ids of both logs; this statement's transaction id; and the lowest id of the transactions
-- in progress, whose changes it could not see.
WITH news AS MATERIALIZED (
    SELECT reservation_id
    FROM reservations_reservationtransition
    WHERE id > %(ledger_end)s::bigint
    ORDER BY id
    LIMIT %(most)s
), held AS MATERIALIZED (
    SELECT DISTINCT line.section_id, news.reservation_id
    FROM news
    JOIN reservations_reservationline AS line ON line.reservation_id = news.reservation_id
), moved AS (
    SELECT section_id FROM held
    UNION
    SELECT section_id
    FROM reservations_inventorychange
    WHERE id > %(record_end)s::bigint AND section_id IS NOT NULL
)
SELECT ARRAY(SELECT section_id FROM moved),
       ARRAY(SELECT section_id FROM held ORDER BY reservation_id, section_id),
       ARRAY(SELECT reservation_id FROM held ORDER BY reservation_id, section_id),
       (SELECT count(*) FROM news),
       -- A sequence that was never used returns 1 as well.
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM reservations_reservationtransition_id_seq),
       (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM reservations_inventorychange_id_seq),
       pg_current_xact_id()::text::bigint,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint
