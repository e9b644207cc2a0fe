-- Adds to the views of days, in the order of their keys.
INSERT INTO events_viewday AS kept (event_id, day, counted)
SELECT * FROM unnest(%(event_ids)s::bigint[], %(days)s::date[], %(counts)s::bigint[]) AS one (event_id, day, counted)
ORDER BY event_id, day
ON CONFLICT (event_id, day) DO UPDATE SET counted = kept.counted + excluded.counted
