-- The sorted leaves of a room's lobby entries with ids in this range. Ids are random, so ranges of equal width contain
-- about equally many entries.
SELECT sha256(uuid_send(id) || nonce) AS leaf
FROM queue_queueentry
WHERE event_id = %(event_id)s
  AND in_lobby
  AND id >= %(from_id)s
  AND id <= %(to_id)s
ORDER BY leaf
