-- For the report of a sale: admissions by reason and time (the index of the point in time before which they were).
SELECT reason, width_bucket(extract(epoch FROM at - %(opens_at)s)::float8, %(edges)s::float8[]), sum(count)::bigint
FROM queue_admissionbatch
WHERE event_id = %(event_id)s AND at <= %(as_of)s
GROUP BY 1, 2
