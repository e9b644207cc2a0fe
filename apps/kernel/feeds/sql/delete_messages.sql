-- Marks these locked messages as deleted and drops their bodies.
UPDATE feeds_message
SET state = 'deleted', body = '', ended_at = clock_timestamp()
WHERE id = ANY(%(ids)s::bigint[])
