-- Up to %(limit)s refunds that are unsettled %(seconds)s seconds after their request, oldest first. The pause after an
-- inquiry is a quarter of the refund's age, from %(seconds)s seconds to six hours. Nothing is locked here.
SELECT id, asked_at
FROM orders_refund
WHERE status IN ('requested', 'pending')
  AND requested_at < clock_timestamp() - make_interval(secs => %(seconds)s)
  AND (
      asked_at IS NULL
      OR asked_at < clock_timestamp() - least(interval '6 hours', greatest(
          make_interval(secs => %(seconds)s), (clock_timestamp() - requested_at) / 4
      ))
  )
ORDER BY requested_at
LIMIT %(limit)s
