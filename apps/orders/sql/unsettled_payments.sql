-- Up to %(limit)s payments that have been pending at the provider for %(seconds)s seconds, oldest first. The pause
-- after an inquiry is a quarter of the payment's age, from %(seconds)s seconds to an hour. Nothing is locked here.
SELECT id, asked_at
FROM orders_payment
WHERE status = 'pending'
  AND started_at < clock_timestamp() - make_interval(secs => %(seconds)s)
  AND (
      asked_at IS NULL
      OR asked_at < clock_timestamp() - least(interval '1 hour', greatest(
          make_interval(secs => %(seconds)s), (clock_timestamp() - started_at) / 4
      ))
  )
ORDER BY started_at
LIMIT %(limit)s
