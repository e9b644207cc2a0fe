-- Seconds for which the oldest unclaimed message has been due, except of the topics %(others)s; NULL when none is due.
SELECT max(
    (
        SELECT extract(epoch FROM clock_timestamp() - greatest(message.available_at, message.claimed_until))::float8
        FROM outbox_outboxmessage AS message
        WHERE message.topic = waiting.topic
          AND message.partition = waiting.partition
          AND message.done_at IS NULL
          AND message.dead_at IS NULL
          AND NOT message.is_behind
          AND message.available_at <= (SELECT clock_timestamp())
          AND (message.claimed_until IS NULL OR message.claimed_until <= clock_timestamp())
        ORDER BY message.available_at, message.id
        LIMIT 1
    )
)
FROM outbox_waitingpartition AS waiting
WHERE waiting.topic <> ALL(%(others)s::text[])
