-- Blanks the networks of up to %(limit)s entries of the event with ids after %(after)s, locked in id order; returns
-- their ids.
WITH found AS (
    SELECT id
    FROM queue_queueentry
    WHERE event_id = %(event_id)s AND id > %(after)s AND network IS NOT NULL
    ORDER BY id
    LIMIT %(limit)s
    FOR NO KEY UPDATE
)
UPDATE queue_queueentry AS entry
SET network = NULL
FROM found
WHERE entry.id = found.id
RETURNING entry.id
