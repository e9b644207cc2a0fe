-- Adds to the views of minutes. Rows are written in the order of their keys, so that two transactions cannot deadlock.
INSERT INTO events_viewminute AS kept (event_id, minute, counted, bots, staff, short, over_address_max, repeated)
SELECT * FROM unnest(
    %(event_ids)s::bigint[], %(minutes)s::timestamptz[], %(counted)s::integer[], %(bots)s::integer[],
    %(staff)s::integer[], %(short)s::integer[], %(over_address_max)s::integer[], %(repeated)s::integer[]
) AS one (event_id, minute, counted, bots, staff, short, over_address_max, repeated)
ORDER BY event_id, minute
ON CONFLICT (event_id, minute) DO UPDATE
SET counted = kept.counted + excluded.counted, bots = kept.bots + excluded.bots, staff = kept.staff + excluded.staff,
    short = kept.short + excluded.short, over_address_max = kept.over_address_max + excluded.over_address_max,
    repeated = kept.repeated + excluded.repeated
