-- The stored responses to these keys in these scopes; the caller selects the pairs that belong together.
SELECT scope, key, fingerprint, status, answer
FROM kernel_idempotentanswer
WHERE scope = ANY(%(scopes)s::text[])
  AND key = ANY(%(keys)s::text[])
  AND created_at > clock_timestamp() - make_interval(hours => %(remembered_hours)s)
