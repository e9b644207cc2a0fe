-- Lock the orders of these payments in id order, except those that another transaction has locked, and return their rows
-- as read under the locks.
SELECT id, number, reservation_id, event_id, entry_id, account_id, buyer, email, name, status, reason, total_minor, currency,
       pay_deadline, placed_at, confirmed_at, ended_at, terms_version, terms_accepted_at,
       tickets_sent_at, link_version, is_handed_over, handed_over_at, origin
FROM orders_order
WHERE id = ANY(ARRAY(SELECT order_id FROM orders_payment WHERE id = ANY(%(payment_ids)s::uuid[])))
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED
