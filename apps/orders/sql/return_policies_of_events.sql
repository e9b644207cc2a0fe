-- The return policies of these events.
SELECT event_id, until_hours, keeps_fees
FROM orders_returnpolicy
WHERE event_id = ANY(%(event_ids)s::bigint[])
