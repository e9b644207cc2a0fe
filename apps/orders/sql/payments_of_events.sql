-- The payments that providers' events are about, with their orders and the number of these orders' tickets, by the number
-- of the event: by our key, or by the provider's id of the charge for an event without key.
WITH given AS MATERIALIZED (
    SELECT *
    FROM unnest(%(numbers)s::int[], %(providers)s::text[], %(payment_ids)s::uuid[], %(references)s::text[])
        AS given (number, provider, payment_id, reference)
),
found AS (
    SELECT given.number, payment.id, payment.order_id
    FROM given
    JOIN orders_payment AS payment ON payment.id = given.payment_id AND payment.provider = given.provider
    UNION ALL
    (
        SELECT DISTINCT ON (given.number) given.number, payment.id, payment.order_id
        FROM given
        JOIN orders_payment AS payment ON payment.provider = given.provider AND payment.reference = given.reference
        WHERE given.payment_id IS NULL AND given.reference <> ''
        ORDER BY given.number, payment.id
    )
)
SELECT found.number, found.id, found.order_id, (
    SELECT reservation.seat_count
    FROM orders_order AS sale
    JOIN reservations_reservation AS reservation ON reservation.id = sale.reservation_id
    WHERE sale.id = found.order_id
)
FROM found
