-- Remembers what a key of this scope was answered, in place of an answer that is forgotten. Touches nothing where there is
-- one that is not; a rival's that is not committed yet is waited for.
INSERT INTO kernel_idempotentanswer AS known (scope, key, fingerprint, status, answer, created_at)
VALUES (
    %(scope)s, %(key)s, %(fingerprint)s, %(status)s, %(answer)s, coalesce(%(now)s::timestamptz, clock_timestamp())
)
ON CONFLICT ON CONSTRAINT idempotent_answer_once DO UPDATE
SET fingerprint = excluded.fingerprint, status = excluded.status, answer = excluded.answer,
    created_at = excluded.created_at
WHERE known.created_at < excluded.created_at - make_interval(hours => %(hours)s)
