-- SHA-256 of the sorted leaves of all entries that were in the lobby, whatever their status is now, and their count.
SELECT sha256(coalesce(string_agg(leaf, ''::bytea ORDER BY leaf), ''::bytea)), count(*)
FROM (
    SELECT sha256(uuid_send(id) || nonce) AS leaf
    FROM queue_queueentry
    WHERE event_id = %(event_id)s AND in_lobby
) AS entrant
