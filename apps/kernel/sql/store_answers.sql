-- Stores the responses to these keys of these scopes, sorted, and replaces expired ones. A key with a response that has
-- not expired is left out. Waits for a concurrent insert of the same key to commit.
INSERT INTO kernel_idempotentanswer AS known (scope, key, fingerprint, status, answer, created_at)
SELECT
    given.scope, given.key, given.fingerprint, given.status, given.answer,
    coalesce(%(now)s::timestamptz, clock_timestamp())
FROM unnest(%(scopes)s::text[], %(keys)s::text[], %(fingerprints)s::text[], %(statuses)s::int[], %(answers)s::text[])
    AS given (scope, key, fingerprint, status, answer)
ORDER BY given.scope, given.key
ON CONFLICT ON CONSTRAINT idempotent_answer_once DO UPDATE
SET fingerprint = excluded.fingerprint, status = excluded.status, answer = excluded.answer,
    created_at = excluded.created_at
WHERE known.created_at < excluded.created_at - make_interval(hours => %(hours)s)
