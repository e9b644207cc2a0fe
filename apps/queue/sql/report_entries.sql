-- For the report of a sale: the entries of the event with ids in a range, grouped by what they are, when they joined
-- (the index of the point in time before which they did) and the seconds that they waited (NULL: never admitted). An
-- erased entry still tells whether it had an account.
SELECT in_lobby,
       account_id IS NOT NULL OR starts_with(visitor_id, 'erased-account-'),
       marked <> '',
       width_bucket(extract(epoch FROM joined_at - %(opens_at)s)::float8, %(edges)s::float8[]),
       CASE WHEN ready_at <= %(as_of)s
            THEN greatest(0, floor(extract(epoch FROM ready_at - greatest(joined_at, %(opens_at)s))))::bigint END,
       count(*)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND id > %(after)s AND id <= %(until)s AND joined_at <= %(as_of)s
GROUP BY 1, 2, 3, 4, 5
