-- Remembers what each winner was answered, sorted by scope and key; last write of the transaction.
INSERT INTO kernel_idempotentanswer (scope, key, fingerprint, status, answer, created_at)
SELECT scope, key, fingerprint, 201, answer, %(now)s
FROM unnest(%(scopes)s::text[], %(keys)s::text[], %(fingerprints)s::text[], %(answers)s::text[])
    AS given (scope, key, fingerprint, answer)
ORDER BY scope, key
ON CONFLICT (scope, key) DO UPDATE
SET fingerprint = excluded.fingerprint, status = excluded.status, answer = excluded.answer,
    created_at = excluded.created_at
