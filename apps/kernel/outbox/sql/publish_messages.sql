-- Inserts these messages in their order; each is due after its delay.
INSERT INTO outbox_outboxmessage (
    topic, key, body, partition, created_at, available_at, is_behind, attempts, last_error
)
SELECT given.topic, given.key, given.body, given.partition, moment.now, moment.now + given.delay, FALSE, 0, ''
FROM unnest(
    %(topics)s::text[], %(keys)s::text[], %(bodies)s::jsonb[], %(partitions)s::smallint[], %(delays)s::interval[]
) WITH ORDINALITY AS given (topic, key, body, partition, delay, position)
CROSS JOIN (SELECT clock_timestamp() AS now) AS moment
ORDER BY given.position
