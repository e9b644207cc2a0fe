-- The response stored for a key of this scope, and its request's fingerprint, unless it has expired by the time given
-- (default: now).
SELECT fingerprint, status, answer
FROM kernel_idempotentanswer
WHERE scope = %(scope)s AND key = %(key)s
  AND created_at >= coalesce(%(now)s::timestamptz, clock_timestamp()) - make_interval(hours => %(hours)s)
