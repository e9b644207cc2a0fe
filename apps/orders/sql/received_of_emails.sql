-- For each of these pairs of event and email address, the valid tickets that the address has received.
SELECT
    given.position,
    (
        SELECT count(*)
        FROM orders_tickettransfer AS transfer
        JOIN orders_ticket AS ticket ON ticket.transfer_id = transfer.id
        JOIN orders_order AS ordered ON ordered.id = ticket.order_id
        WHERE transfer.email = given.email AND ordered.event_id = given.event_id AND ticket.voided_at IS NULL
    )
FROM unnest(%(event_ids)s::bigint[], %(emails)s::text[]) WITH ORDINALITY AS given (event_id, email, position)
ORDER BY given.position
