-- Makes sure that these cap rows exist. Runs before the hold's transaction, in one of its own: inserted inside, a
-- new row would make rivals wait for the whole hold. This commit does not wait for the disk: the row holds no number, and
-- whatever is held under it is committed later, durably, and with that everything before it.
INSERT INTO reservations_purchasecap (event_id, buyer)
SELECT DISTINCT event_id, buyer
FROM unnest(%(event_ids)s::bigint[], %(buyers)s::text[]) AS asked (event_id, buyer)
CROSS JOIN set_config('synchronous_commit', 'off', true) AS setting
ORDER BY event_id, buyer
ON CONFLICT (event_id, buyer) DO NOTHING
