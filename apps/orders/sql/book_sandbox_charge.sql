-- Insert a charge of the sandbox, once per key. Returns no row for a known key. A concurrent second insert with the key
-- waits for the first to commit.
INSERT INTO orders_sandboxcharge (
    idempotency_key, method, amount_minor, currency, status, occurred_at, then_status, then_at, return_url
)
SELECT %(idempotency_key)s, %(method)s, %(amount_minor)s, %(currency)s, %(status)s, moment.now, %(then_status)s,
       moment.now + %(then_after)s::interval, %(return_url)s
FROM (SELECT clock_timestamp() AS now) AS moment
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING id, occurred_at, then_at
