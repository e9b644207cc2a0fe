-- Takes the oldest notes of changed events.
DELETE FROM events_searchchange
WHERE id IN (
    SELECT id FROM events_searchchange ORDER BY id LIMIT %(limit)s::bigint FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING event_id
