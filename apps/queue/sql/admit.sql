-- Admits up to %(most)s waiting entries of a room: first the priority entries, then, unless %(only_marked)s, the lowest
-- numbers, up to %(numbered_through)s while the draw is numbering. There is no lower bound: entries that returned are
-- below the head and go first. Entries without a number are not in the queue.
-- The entries in %(present)s have arrived and start shopping at once; the others get a claim time.
-- The caller holds the room's lock, so waiting entries can only leave. The statement waits for one that is leaving and
-- then skips it. (Limits are plain and ids are looked up as arrays, so that the planner does not guess the number of
-- rows: it would guess a tenth of the queue, and read the whole table in every tick.)
WITH ahead AS MATERIALIZED (
    SELECT id, number
    FROM queue_queueentry
    WHERE event_id = %(event_id)s AND marked <> '' AND status = 'waiting' AND number IS NOT NULL
    ORDER BY number
    LIMIT %(most)s
), turn AS MATERIALIZED (
    SELECT id, number
    FROM queue_queueentry
    WHERE event_id = %(event_id)s
      AND status = 'waiting'
      AND marked = ''
      AND NOT %(only_marked)s
      AND number IS NOT NULL
      AND (%(numbered_through)s::bigint IS NULL OR number <= %(numbered_through)s)
    ORDER BY number
    LIMIT %(most)s
), picked AS (
    SELECT id
    FROM (SELECT id, number, 1 AS turn FROM ahead UNION ALL SELECT id, number, 2 FROM turn) AS either
    ORDER BY turn, number
    LIMIT %(most)s
), locked AS (
    SELECT id
    FROM queue_queueentry
    WHERE id = ANY(ARRAY(SELECT id FROM picked)) AND status = 'waiting'
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
WHERE entry.id = ANY(ARRAY(SELECT id FROM locked))
RETURNING entry.id, entry.number, entry.marked <> ''
