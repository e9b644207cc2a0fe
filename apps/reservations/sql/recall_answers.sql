-- The remembered answers to these keys.
SELECT known.scope, known.key, known.fingerprint, known.status, known.answer
FROM unnest(%(scopes)s::text[], %(keys)s::text[]) AS asked (scope, key)
JOIN kernel_idempotentanswer AS known ON known.scope = asked.scope AND known.key = asked.key
WHERE known.created_at > clock_timestamp() - make_interval(hours => %(remembered_hours)s)
