-- Every entrant has a number, in the one order that the seed gives. An insert into a table of its own: an UPDATE that
-- permutes numbers in place meets its own unique index, and would lock a million entries for as long as it runs.
INSERT INTO queue_drawnplace (event_id, number, entry_id)
SELECT event_id, row_number() OVER (ORDER BY sha256(%(seed)s::bytea || leaf), leaf), id
FROM (
    SELECT event_id, id, sha256(uuid_send(id) || nonce) AS leaf
    FROM queue_queueentry
    WHERE event_id = %(event_id)s AND in_lobby
) AS entrant
