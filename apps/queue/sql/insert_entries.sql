-- Inserts new waiting entries. The caller has taken their numbers from the rooms' rows, under their locks.
INSERT INTO queue_queueentry
    (id, event_id, number, in_lobby, nonce, marked, account_id, visitor_id, status, joined_at, network)
SELECT id, event_id, number, in_lobby, nonce, '', account_id, visitor_id, 'waiting', %(joined_at)s::timestamptz,
       network
FROM unnest(
    %(ids)s::uuid[], %(event_ids)s::bigint[], %(numbers)s::bigint[], %(in_lobby)s::boolean[], %(nonces)s::bytea[],
    %(account_ids)s::bigint[], %(visitor_ids)s::text[], %(networks)s::bytea[]
) AS given (id, event_id, number, in_lobby, nonce, account_id, visitor_id, network)
