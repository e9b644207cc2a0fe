-- Claims up to %(limit)s messages that are due, oldest first, and only the oldest unsettled one of each key.
-- SKIP LOCKED: two claimers never wait for one another. The claim is the row itself: a visibility time-out, no lock
-- held while the work is done.
WITH due AS (
    SELECT message.id
    FROM outbox_outboxmessage AS message
    WHERE message.done_at IS NULL
      AND message.dead_at IS NULL
      AND message.available_at <= clock_timestamp()
      AND (message.claimed_until IS NULL OR message.claimed_until <= clock_timestamp())
      AND NOT EXISTS (
          SELECT 1
          FROM outbox_outboxmessage AS earlier
          WHERE earlier.topic = message.topic
            AND earlier.key = message.key
            AND earlier.id < message.id
            AND earlier.done_at IS NULL
            AND earlier.dead_at IS NULL
      )
    ORDER BY message.id
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE outbox_outboxmessage AS message
SET claimed_until = clock_timestamp() + coalesce(
        (
            SELECT given.visibility
            FROM unnest(%(topics)s::text[], %(visibilities)s::interval[]) AS given (topic, visibility)
            WHERE given.topic = message.topic
        ),
        %(visibility)s
    ),
    receipt = gen_random_uuid(),
    attempts = message.attempts + 1
FROM due
WHERE message.id = due.id
RETURNING message.id, message.topic, message.key, message.body, message.receipt, message.attempts, message.created_at
