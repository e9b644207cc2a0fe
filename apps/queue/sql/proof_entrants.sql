-- The leaves of a room's lobby entries whose id lies in this range, sorted: ids are random, so ranges are even.
SELECT sha256(uuid_send(id) || nonce) AS leaf
FROM queue_queueentry
WHERE event_id = %(event_id)s
  AND in_lobby
  AND id >= %(from_id)s
  AND id <= %(to_id)s
ORDER BY leaf
