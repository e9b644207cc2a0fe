-- Stores the responses of successful holds, sorted by scope and key; the transaction's last write. The responses are
-- lines of one text: in array elements, the many quotation marks of JSON would have to be escaped.
INSERT INTO kernel_idempotentanswer (scope, key, fingerprint, status, answer, created_at)
SELECT scope, key, fingerprint, 201, answer, %(now)s
FROM unnest(
    %(scopes)s::text[], %(keys)s::text[], %(fingerprints)s::text[], string_to_array(%(lines)s::text, chr(10))
) AS given (scope, key, fingerprint, answer)
ORDER BY scope, key
ON CONFLICT (scope, key) DO UPDATE
SET fingerprint = excluded.fingerprint, status = excluded.status, answer = excluded.answer,
    created_at = excluded.created_at
