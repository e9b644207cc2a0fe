-- SHA-256 over the sorted leaves of everybody who was in the lobby, whatever became of them since, and how many.
SELECT sha256(coalesce(string_agg(leaf, ''::bytea ORDER BY leaf), ''::bytea)), count(*)
FROM (
    SELECT sha256(uuid_send(id) || nonce) AS leaf
    FROM queue_queueentry
    WHERE event_id = %(event_id)s AND in_lobby
) AS entrant
