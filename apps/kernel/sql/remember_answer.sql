-- Stores the response to a key of this scope, replacing an expired one. Changes nothing if there is one that has not
-- expired; waits for a concurrent insert of the same key to commit.
INSERT INTO kernel_idempotentanswer AS known (scope, key, fingerprint, status, answer, created_at)
VALUES (
    %(scope)s, %(key)s, %(fingerprint)s, %(status)s, %(answer)s, coalesce(%(now)s::timestamptz, clock_timestamp())
)
ON CONFLICT ON CONSTRAINT idempotent_answer_once DO UPDATE
SET fingerprint = excluded.fingerprint, status = excluded.status, answer = excluded.answer,
    created_at = excluded.created_at
WHERE known.created_at < excluded.created_at - make_interval(hours => %(hours)s)
