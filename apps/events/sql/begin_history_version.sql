-- Locks the history of an owner, creating it if there is none, and begins its next version; no row if searches are not
-- saved.
INSERT INTO events_searchhistory AS history (owner, account_id, version, stamp, is_on, changed_at)
VALUES (%(owner)s, %(account_id)s, 1, gen_random_uuid(), true, clock_timestamp())
ON CONFLICT (owner) DO UPDATE
SET version = history.version + 1, stamp = gen_random_uuid(), changed_at = clock_timestamp()
WHERE history.is_on
RETURNING id, version
