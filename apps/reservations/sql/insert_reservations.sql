-- Inserts the headers of successful holds, sorted by id, after all decisions.
INSERT INTO reservations_reservation
    (id, event_id, entry_id, account_id, buyer, email, status, expires_at, seat_count, total_minor, currency, created_at)
SELECT id, event_id, entry_id, account_id, buyer, '', 'pending_payment', expires_at, seat_count, total_minor, currency,
       %(now)s
FROM unnest(
    %(ids)s::uuid[], %(event_ids)s::bigint[], %(entry_ids)s::uuid[], %(account_ids)s::int[], %(buyers)s::text[],
    %(deadlines)s::timestamptz[], %(seat_counts)s::int[], %(totals)s::bigint[], %(currencies)s::text[]
) AS given (id, event_id, entry_id, account_id, buyer, expires_at, seat_count, total_minor, currency)
ORDER BY id
