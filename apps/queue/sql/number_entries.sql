-- Copies the drawn numbers above %(above)s up to %(through)s to their entries, which are first locked in id order.
-- Entries that an earlier attempt has numbered are skipped.
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
