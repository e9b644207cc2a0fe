-- The price of every category of these events as it is now.
SELECT id, price_minor
FROM events_category
WHERE event_id = ANY(%(event_ids)s::bigint[])
