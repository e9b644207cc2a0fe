-- Up to %(most)s who wait in a room are ready: first the marked ones, let through ahead of their turn, then, unless
-- %(only_marked)s, the lowest numbers, up to %(numbered_through)s where the draw has not numbered everybody yet. No
-- lower bound: who returned is below the head, and goes first. Who has no number yet is not in line.
-- Those in %(present)s are here and shop from now on; the others have a claim time in which to come.
-- The caller holds the room's lock, so numbers only leave; an entry that leaves meanwhile is waited for and dropped.
-- (Limits are plain and ids are looked up as arrays: a planner that has to guess how many there will be guesses a tenth
-- of the line, and reads the whole table in every tick.)
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
