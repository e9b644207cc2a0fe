-- Makes the earliest unsettled message of the key claimable, if it was put aside behind the one just settled.
UPDATE outbox_outboxmessage AS message
SET is_behind = FALSE
WHERE message.is_behind
  AND message.id = (
      SELECT earliest.id
      FROM outbox_outboxmessage AS earliest
      WHERE earliest.topic = %(topic)s
        AND earliest.key = %(key)s
        AND earliest.done_at IS NULL
        AND earliest.dead_at IS NULL
      ORDER BY earliest.id
      LIMIT 1
  )
