-- Locks the order of a payment, and gives it as it is under the lock. Whose a payment is never changes, so that may be
-- read before.
SELECT id, number, reservation_id, event_id, entry_id, account_id, buyer, email, name, status, reason, total_minor, currency,
       pay_deadline, placed_at, confirmed_at, ended_at, tickets_sent_at
FROM orders_order
WHERE id = (SELECT payment.order_id FROM orders_payment AS payment WHERE payment.id = %(payment_id)s)
FOR NO KEY UPDATE
