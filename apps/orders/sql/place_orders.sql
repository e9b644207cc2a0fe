-- Inserts the orders of these reservations, each reservation's once: a concurrent second insert waits for the first to
-- commit, then inserts nothing. They are inserted in the order of their reservations, and these are the transaction's
-- first locks, so they cannot deadlock. The payment deadline is the end of the hold, or the time to pay from now if that
-- is later.
INSERT INTO orders_order (
    id, number, reservation_id, event_id, entry_id, account_id, buyer, email, name, status, reason, total_minor,
    currency, pay_deadline, placed_at, terms_version, terms_accepted_at, origin
)
SELECT
    given.id, given.number, given.reservation_id, given.event_id, given.entry_id, given.account_id, given.buyer,
    given.email, given.name, 'placed', '', given.total_minor, given.currency,
    greatest(given.expires_at, moment.now + make_interval(secs => given.payment_seconds)), moment.now,
    given.terms_version, CASE WHEN given.terms_version <> '' THEN moment.now END, given.origin
FROM unnest(
    %(ids)s::uuid[], %(numbers)s::text[], %(reservation_ids)s::uuid[], %(event_ids)s::bigint[], %(entry_ids)s::uuid[],
    %(account_ids)s::bigint[], %(buyers)s::text[], %(emails)s::text[], %(names)s::text[], %(totals_minor)s::bigint[],
    %(currencies)s::text[], %(expiry_times)s::timestamptz[], %(payment_seconds)s::int[], %(terms_versions)s::text[],
    %(origins)s::text[]
) AS given (
    id, number, reservation_id, event_id, entry_id, account_id, buyer, email, name, total_minor, currency, expires_at,
    payment_seconds, terms_version, origin
)
CROSS JOIN (SELECT clock_timestamp() AS now) AS moment
ORDER BY given.reservation_id
ON CONFLICT ON CONSTRAINT order_one_per_reservation DO NOTHING
RETURNING id, placed_at, terms_accepted_at, pay_deadline
