-- How many slots of a room are not free: everybody ready, come or not yet. Exact under the room's lock.
SELECT count(*)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND status = 'ready'
