-- The transfers that the buyers of these orders have started, oldest first.
SELECT transfer.id, transfer.ticket_id, transfer.sequence, transfer.email, transfer.offered_at, transfer.expires_at,
       transfer.accepted_at, transfer.ended_at
FROM orders_tickettransfer AS transfer
JOIN orders_ticket AS ticket ON ticket.id = transfer.ticket_id
WHERE ticket.order_id = ANY(%(order_ids)s::uuid[]) AND transfer.sequence = 1
ORDER BY transfer.offered_at, transfer.id
