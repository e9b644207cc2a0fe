-- The leaves of the numbers from %(first)s to %(last)s, in order; a number without an entry has no row. Until the drawn
-- numbers are copied to the entries, those up to %(drawn_through)s are read from the draw.
SELECT number, sha256(uuid_send(id) || nonce)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND number BETWEEN greatest(%(first)s, %(drawn_through)s + 1) AND %(last)s
UNION ALL
SELECT place.number, sha256(uuid_send(entry.id) || entry.nonce)
FROM queue_drawnplace AS place
JOIN queue_queueentry AS entry ON entry.id = place.entry_id
WHERE place.event_id = %(event_id)s AND place.number BETWEEN %(first)s AND least(%(last)s, %(drawn_through)s)
ORDER BY 1
