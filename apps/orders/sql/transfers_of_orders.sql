-- The transfers that the buyers of these orders have started, oldest first; of an order that staff have given to another
-- person, those of its present owner.
SELECT transfer.id, transfer.ticket_id, transfer.sequence, transfer.email, transfer.offered_at, transfer.expires_at,
       transfer.accepted_at, transfer.ended_at
FROM orders_tickettransfer AS transfer
JOIN orders_ticket AS ticket ON ticket.id = transfer.ticket_id
JOIN orders_order AS sold ON sold.id = ticket.order_id
WHERE ticket.order_id = ANY(%(order_ids)s::uuid[]) AND transfer.sequence = 1
    AND transfer.offered_at >= coalesce(sold.handed_over_at, '-infinity')
ORDER BY transfer.offered_at, transfer.id
