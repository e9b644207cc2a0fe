-- The sorted leaves of a room's lobby entries whose ids are in this range. Ids are random, so equally wide ranges have
-- about as many entries.
SELECT sha256(uuid_send(id) || nonce) AS leaf
FROM queue_queueentry
WHERE event_id = %(event_id)s
  AND in_lobby
  AND id >= %(from_id)s
  AND id <= %(to_id)s
ORDER BY leaf
