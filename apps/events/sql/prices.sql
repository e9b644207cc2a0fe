-- The current price of every category of these events.
SELECT id, price_minor
FROM events_category
WHERE event_id = ANY(%(event_ids)s::bigint[])
