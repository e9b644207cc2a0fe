-- Puts aside due messages whose predecessor of the same key is in progress or waits for a retry, because each claim
-- would have to skip them. Settling the predecessor makes the next one claimable (unblock_next_messages). The topics
-- %(others)s are left to other processes.
-- The predecessor is locked first and checked under its lock. A concurrent settlement either waits for us and then sees
-- our change, or holds the lock already, and we skip the key. This statement waits for no lock (SKIP LOCKED).
WITH due AS MATERIALIZED (
    SELECT
        one.id,
        (
            SELECT earliest.id
            FROM outbox_outboxmessage AS earliest
            WHERE earliest.topic = waiting.topic
              AND earliest.key = one.key
              AND earliest.done_at IS NULL
              AND earliest.dead_at IS NULL
            ORDER BY earliest.id
            LIMIT 1
        ) AS earliest_id
    FROM outbox_waitingpartition AS waiting
    CROSS JOIN LATERAL (
        SELECT message.id, message.key
        FROM outbox_outboxmessage AS message
        WHERE message.topic = waiting.topic
          AND message.partition = waiting.partition
          AND message.done_at IS NULL
          AND message.dead_at IS NULL
          AND NOT message.is_behind
          AND message.available_at <= (SELECT clock_timestamp())
          AND (message.claimed_until IS NULL OR message.claimed_until <= clock_timestamp())
        ORDER BY message.available_at, message.id
        LIMIT %(window)s
    ) AS one
    WHERE waiting.topic <> ALL(%(others)s::text[])
),
earliest AS MATERIALIZED (
    SELECT message.id
    FROM outbox_outboxmessage AS message
    WHERE message.id = ANY(ARRAY(SELECT due.earliest_id FROM due WHERE due.earliest_id < due.id))
      AND message.done_at IS NULL
      AND message.dead_at IS NULL
      AND (message.claimed_until > clock_timestamp() OR message.available_at > clock_timestamp())
    ORDER BY message.id
    FOR NO KEY UPDATE SKIP LOCKED
),
blocked AS MATERIALIZED (
    SELECT message.id
    FROM outbox_outboxmessage AS message
    WHERE message.id = ANY(
              ARRAY(
                  SELECT due.id
                  FROM due
                  WHERE due.earliest_id < due.id AND due.earliest_id IN (SELECT earliest.id FROM earliest)
              )
          )
      AND message.done_at IS NULL
      AND message.dead_at IS NULL
      AND (message.claimed_until IS NULL OR message.claimed_until <= clock_timestamp())
    ORDER BY message.id
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE outbox_outboxmessage AS message
SET is_behind = TRUE
FROM blocked
WHERE message.id = blocked.id
