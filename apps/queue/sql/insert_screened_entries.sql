-- Inserts new entries of a room with screening, as insert_entries.sql does, each with its status, the work that it has
-- used up, and its score.
INSERT INTO queue_queueentry
    (id, event_id, number, in_lobby, nonce, marked, account_id, visitor_id, status, joined_at, network,
     work, score, reasons)
SELECT id, event_id, number, in_lobby, nonce, '', account_id, visitor_id, status, %(joined_at)s::timestamptz,
       network, work, score, reasons
FROM unnest(
    %(ids)s::uuid[], %(event_ids)s::bigint[], %(numbers)s::bigint[], %(in_lobby)s::boolean[], %(nonces)s::bytea[],
    %(account_ids)s::bigint[], %(visitor_ids)s::text[], %(networks)s::bytea[], %(statuses)s::text[], %(works)s::bytea[],
    %(scores)s::int[], %(reasons)s::text[]
) AS given (id, event_id, number, in_lobby, nonce, account_id, visitor_id, network, status, work, score, reasons)
