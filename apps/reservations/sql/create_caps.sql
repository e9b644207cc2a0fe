-- Creates missing cap rows, in a transaction before the hold's: if a hold inserted them, concurrent holds would wait
-- until it ends. This commit does not wait for the disk: the row contains no count, and the durable commit of a later
-- hold makes earlier commits durable too.
INSERT INTO reservations_purchasecap (event_id, buyer)
SELECT DISTINCT event_id, buyer
FROM unnest(%(event_ids)s::bigint[], %(buyers)s::text[]) AS asked (event_id, buyer)
CROSS JOIN set_config('synchronous_commit', 'off', true) AS setting
ORDER BY event_id, buyer
ON CONFLICT (event_id, buyer) DO NOTHING
