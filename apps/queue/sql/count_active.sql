-- The number of occupied slots of a room, which are all admitted entries, claimed or not, and how many of them have no
-- live reservation. Exact under the room's lock.
SELECT count(*), count(*) FILTER (WHERE busy_until IS NULL)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND status = 'ready'
