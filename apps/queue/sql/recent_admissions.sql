-- How many were admitted in the last %(window_seconds)s seconds, and how many seconds ago that began.
SELECT coalesce(sum(count), 0), coalesce(extract(epoch FROM clock_timestamp() - min(at)), 0)
FROM queue_admissionbatch
WHERE event_id = %(event_id)s AND at > clock_timestamp() - make_interval(secs => %(window_seconds)s)
