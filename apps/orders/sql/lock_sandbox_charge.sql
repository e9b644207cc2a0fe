-- Lock a charge of the sandbox and return its row as read under the lock.
SELECT id, idempotency_key, method, amount_minor, currency, status, occurred_at, then_status, then_at, return_url
FROM orders_sandboxcharge
WHERE idempotency_key = %(idempotency_key)s
FOR NO KEY UPDATE
