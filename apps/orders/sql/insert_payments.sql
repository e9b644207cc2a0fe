-- Inserts the first payment of these orders, which were just placed.
INSERT INTO orders_payment (
    id, order_id, attempt, provider, method, faults_count, reference, status, amount_minor, captured_minor,
    refunded_minor, currency, counts_until, created_at
)
SELECT
    given.id, given.order_id, 1, given.provider, given.method, 0, '', 'pending', given.amount_minor, 0, 0,
    given.currency, given.counts_until, %(now)s
FROM unnest(
    %(ids)s::uuid[], %(order_ids)s::uuid[], %(providers)s::text[], %(methods)s::text[], %(amounts_minor)s::bigint[],
    %(currencies)s::text[], %(counts_until)s::timestamptz[]
) AS given (id, order_id, provider, method, amount_minor, currency, counts_until)
