-- For how many seconds the longest-waiting message has been due that nobody has claimed. NULL when none is due.
WITH RECURSIVE topic AS (
    (
        SELECT message.topic AS name
        FROM outbox_outboxmessage AS message
        WHERE message.done_at IS NULL AND message.dead_at IS NULL AND NOT message.is_behind
        ORDER BY message.topic
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT message.topic
        FROM outbox_outboxmessage AS message
        WHERE message.done_at IS NULL AND message.dead_at IS NULL AND NOT message.is_behind
          AND message.topic > topic.name
        ORDER BY message.topic
        LIMIT 1
    )
    FROM topic
    WHERE topic.name IS NOT NULL
)
SELECT max(
    (
        SELECT extract(epoch FROM clock_timestamp() - greatest(message.available_at, message.claimed_until))::float8
        FROM outbox_outboxmessage AS message
        WHERE message.topic = topic.name
          AND message.done_at IS NULL
          AND message.dead_at IS NULL
          AND NOT message.is_behind
          AND message.available_at <= (SELECT clock_timestamp())
          AND (message.claimed_until IS NULL OR message.claimed_until <= clock_timestamp())
        ORDER BY message.available_at, message.id
        LIMIT 1
    )
)
FROM topic
