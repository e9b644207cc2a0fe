-- The entries that drew the numbers above %(above)s and up to %(through)s have them. Locked in id order first; those
-- numbered by an earlier attempt are left alone.
WITH drawn AS (
    SELECT entry_id, number
    FROM queue_drawnplace
    WHERE event_id = %(event_id)s AND number > %(above)s AND number <= %(through)s
), locked AS (
    SELECT id
    FROM queue_queueentry
    WHERE id IN (SELECT entry_id FROM drawn) AND number IS NULL
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE queue_queueentry AS entry
SET number = drawn.number
FROM locked
JOIN drawn ON drawn.entry_id = locked.id
WHERE entry.id = locked.id
