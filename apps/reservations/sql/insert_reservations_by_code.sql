-- Inserts the headers of successful holds with an access code, sorted by id, after all decisions.
INSERT INTO reservations_reservation
    (id, event_id, entry_id, account_id, buyer, email, status, expires_at, seat_count, total_minor, currency, created_at,
     access_code_id)
SELECT id, event_id, entry_id, account_id, buyer, '', 'pending_payment', expires_at, seat_count, total_minor, currency,
       %(now)s, access_code_id
FROM unnest(
    %(ids)s::uuid[], %(event_ids)s::bigint[], %(entry_ids)s::uuid[], %(account_ids)s::int[], %(buyers)s::text[],
    %(deadlines)s::timestamptz[], %(seat_counts)s::int[], %(totals)s::bigint[], %(currencies)s::text[],
    %(access_code_ids)s::bigint[]
) AS given (id, event_id, entry_id, account_id, buyer, expires_at, seat_count, total_minor, currency,
            access_code_id)
ORDER BY id
