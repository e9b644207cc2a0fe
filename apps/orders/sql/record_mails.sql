-- Record in the history of these orders that a mail was sent, and on the orders themselves if it had their tickets.
WITH sent AS (
    UPDATE orders_order
    SET tickets_sent_at = clock_timestamp()
    WHERE %(has_tickets)s AND id = ANY(%(order_ids)s::uuid[])
)
INSERT INTO orders_orderhistoryentry (order_id, kind, who, text, address, at)
SELECT given.order_id, 'mail', '', %(subject)s, %(address)s, clock_timestamp()
FROM unnest(%(order_ids)s::uuid[]) AS given (order_id)
