-- Insert the order of a reservation, once: a concurrent second insert waits for the first to commit, then inserts
-- nothing. This is the transaction's first lock, so it cannot deadlock.
INSERT INTO orders_order (
    id, number, reservation_id, event_id, entry_id, account_id, buyer, email, name, status, reason, total_minor,
    currency, pay_deadline, placed_at, terms_version, terms_accepted_at
)
VALUES (
    %(id)s, %(number)s, %(reservation_id)s, %(event_id)s, %(entry_id)s, %(account_id)s, %(buyer)s, %(email)s, %(name)s,
    'placed', '', %(total_minor)s, %(currency)s, clock_timestamp(), clock_timestamp(), %(terms_version)s,
    CASE WHEN %(terms_version)s <> '' THEN clock_timestamp() END
)
ON CONFLICT ON CONSTRAINT order_one_per_reservation DO NOTHING
RETURNING placed_at, terms_accepted_at
