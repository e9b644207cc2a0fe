-- Lock the order of a payment and return its row as read under the lock. A payment never moves to another order, so the
-- order's id may be read without a lock.
SELECT id, number, reservation_id, event_id, entry_id, account_id, buyer, email, name, status, reason, total_minor, currency,
       pay_deadline, placed_at, confirmed_at, ended_at, terms_version, terms_accepted_at,
       tickets_sent_at, link_version, is_handed_over, handed_over_at, origin
FROM orders_order
WHERE id = (SELECT payment.order_id FROM orders_payment AS payment WHERE payment.id = %(payment_id)s)
FOR NO KEY UPDATE
