-- The transfer policies of these events.
SELECT event_id, until_hours, per_ticket_max, per_recipient_max
FROM orders_transferpolicy
WHERE event_id = ANY(%(event_ids)s::bigint[])
