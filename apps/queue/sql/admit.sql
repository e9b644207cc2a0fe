-- The first %(most)s waiting numbers of a room are ready. No lower bound: who returned is below the head, and goes first.
-- Those in %(present)s are here and shop from now on; the others have a claim time in which to come.
-- The caller holds the room's lock, so numbers only leave; an entry that leaves meanwhile is waited for and dropped.
WITH turn AS (
    SELECT id
    FROM queue_queueentry
    WHERE event_id = %(event_id)s AND status = 'waiting'
    ORDER BY number
    LIMIT %(most)s
), locked AS (
    SELECT id
    FROM queue_queueentry
    WHERE id IN (SELECT id FROM turn) AND status = 'waiting'
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE queue_queueentry AS entry
SET status = 'ready',
    ready_at = %(now)s,
    admission_expires_at = CASE
        WHEN entry.id = ANY(%(present)s::uuid[]) THEN %(now)s + make_interval(secs => %(admission_seconds)s)
    END,
    claim_expires_at = CASE
        WHEN entry.id <> ALL(%(present)s::uuid[]) THEN %(now)s + make_interval(secs => %(claim_seconds)s)
    END
FROM locked
WHERE entry.id = locked.id
RETURNING entry.id, entry.number
