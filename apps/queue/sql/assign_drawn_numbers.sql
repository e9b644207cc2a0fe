-- Assigns a number to every entrant, in the order given by the seed. Inserts into a separate table: an UPDATE that
-- permutes numbers in place would violate its unique index, and would lock a million entries while it runs.
INSERT INTO queue_drawnplace (event_id, number, entry_id)
SELECT event_id, row_number() OVER (ORDER BY sha256(%(seed)s::bytea || leaf), leaf), id
FROM (
    SELECT event_id, id, sha256(uuid_send(id) || nonce) AS leaf
    FROM queue_queueentry
    WHERE event_id = %(event_id)s AND in_lobby
) AS entrant
