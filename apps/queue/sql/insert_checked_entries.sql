-- Inserts new entries that were screened or opened by a presale code, as insert_entries.sql does, each with its status,
-- the work that it has used up, its score, and the code's key.
INSERT INTO queue_queueentry
    (id, event_id, number, in_lobby, nonce, marked, account_id, visitor_id, status, joined_at, network,
     work, score, reasons, presale_key)
SELECT id, event_id, number, in_lobby, nonce, '', account_id, visitor_id, status, %(joined_at)s::timestamptz,
       network, work, score, reasons, presale_key
FROM unnest(
    %(ids)s::uuid[], %(event_ids)s::bigint[], %(numbers)s::bigint[], %(in_lobby)s::boolean[], %(nonces)s::bytea[],
    %(account_ids)s::bigint[], %(visitor_ids)s::text[], %(networks)s::bytea[], %(statuses)s::text[], %(works)s::bytea[],
    %(scores)s::int[], %(reasons)s::text[], %(presale_keys)s::bytea[]
) AS given (id, event_id, number, in_lobby, nonce, account_id, visitor_id, network, status, work, score, reasons,
            presale_key)
