-- What a key of this scope was answered, and to which request, unless that is forgotten by the moment given, or by now.
SELECT fingerprint, status, answer
FROM kernel_idempotentanswer
WHERE scope = %(scope)s AND key = %(key)s
  AND created_at >= coalesce(%(now)s::timestamptz, clock_timestamp()) - make_interval(hours => %(hours)s)
