-- Makes the earliest unsettled message of each of these keys claimable, if it was put aside behind one whose claim
-- has just ended.
WITH next AS MATERIALIZED (
    SELECT message.id
    FROM unnest(%(keys)s::text[]) AS given (key)
    CROSS JOIN LATERAL (
        SELECT earliest.id
        FROM outbox_outboxmessage AS earliest
        WHERE earliest.topic = %(topic)s
          AND earliest.key = given.key
          AND earliest.done_at IS NULL
          AND earliest.dead_at IS NULL
        ORDER BY earliest.id
        LIMIT 1
    ) AS head
    JOIN outbox_outboxmessage AS message ON message.id = head.id
    WHERE message.is_behind
    ORDER BY message.id
    FOR NO KEY UPDATE OF message
)
UPDATE outbox_outboxmessage AS message
SET is_behind = FALSE
FROM next
WHERE message.id = next.id
