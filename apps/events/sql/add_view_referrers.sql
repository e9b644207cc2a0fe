-- Adds to the views by referrer, in the order of their keys.
INSERT INTO events_viewreferrer AS kept (event_id, day, host, counted)
SELECT * FROM unnest(%(event_ids)s::bigint[], %(days)s::date[], %(hosts)s::text[], %(counts)s::integer[])
    AS one (event_id, day, host, counted)
ORDER BY event_id, day, host
ON CONFLICT (event_id, day, host) DO UPDATE SET counted = kept.counted + excluded.counted
