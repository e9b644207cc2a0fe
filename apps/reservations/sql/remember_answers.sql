-- Remembers what each winner was answered, sorted by scope and key; last write of the transaction. The answers come as
-- lines of one text: every quotation mark of an array's element would have to be escaped, and JSON is full of them.
INSERT INTO kernel_idempotentanswer (scope, key, fingerprint, status, answer, created_at)
SELECT scope, key, fingerprint, 201, answer, %(now)s
FROM unnest(
    %(scopes)s::text[], %(keys)s::text[], %(fingerprints)s::text[], string_to_array(%(lines)s::text, chr(10))
) AS given (scope, key, fingerprint, answer)
ORDER BY scope, key
ON CONFLICT (scope, key) DO UPDATE
SET fingerprint = excluded.fingerprint, status = excluded.status, answer = excluded.answer,
    created_at = excluded.created_at
