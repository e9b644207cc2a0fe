-- How the outbox stands: published in the last minute (counted up to 100,000), pending, stuck for over five minutes,
-- given up, mean seconds from claim to deletion in the last hour (of the latest 10,000), lag in seconds.
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
SELECT
    (
        SELECT count(*)
        FROM (SELECT created_at FROM outbox_outboxmessage ORDER BY id DESC LIMIT 100000) AS latest
        WHERE latest.created_at > clock_timestamp() - interval '1 minute'
    ),
    (SELECT count(*) FROM outbox_outboxmessage WHERE done_at IS NULL AND dead_at IS NULL),
    (
        SELECT count(*)
        FROM outbox_outboxmessage
        WHERE done_at IS NULL
          AND dead_at IS NULL
          AND claimed_until IS NOT NULL
          AND claimed_at < clock_timestamp() - interval '5 minutes'
    ),
    (SELECT count(*) FROM outbox_outboxmessage WHERE dead_at IS NOT NULL),
    (
        SELECT avg(extract(epoch FROM latest.done_at - latest.claimed_at))::float8
        FROM (
            SELECT done_at, claimed_at
            FROM outbox_outboxmessage
            WHERE done_at > (SELECT clock_timestamp()) - interval '1 hour'
            ORDER BY done_at DESC
            LIMIT 10000
        ) AS latest
    ),
    (
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
    )
