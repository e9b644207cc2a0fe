-- How many slots of a room are not free: everybody ready, come or not yet; and how many of those have no live
-- reservation. Exact under the room's lock.
SELECT count(*), count(*) FILTER (WHERE busy_until IS NULL)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND status = 'ready'
