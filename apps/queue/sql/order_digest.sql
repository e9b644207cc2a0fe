-- Of up to %(most)s entries of an event after a given number, in the order of their numbers: their count, the last
-- number, and a digest of the numbers with the entries' ids.
SELECT count(*),
       max(piece.number),
       encode(sha256(string_agg(int8send(piece.number) || uuid_send(piece.id), ''::bytea ORDER BY piece.number)), 'hex')
FROM (
    SELECT number, id
    FROM queue_queueentry
    WHERE event_id = %(event_id)s AND number > %(after)s AND number < %(before)s
    ORDER BY number
    LIMIT %(most)s
) AS piece
