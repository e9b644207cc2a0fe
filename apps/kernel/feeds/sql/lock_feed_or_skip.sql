-- Locks the feed and returns its id; nothing if another transaction has it locked. Receivers use it, which wait for no
-- lock.
SELECT id
FROM feeds_feed
WHERE id = %(feed)s
FOR NO KEY UPDATE SKIP LOCKED
