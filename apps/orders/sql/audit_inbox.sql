-- I7: messages of this batch that are stored twice, that were processed without an outcome, or that are not processed
-- and have no outbox message or have waited too long.
SELECT message.provider, message.message_id, checked.wrong
FROM orders_providermessage AS message
LEFT JOIN orders_payment AS payment ON payment.id = message.payment_id
LEFT JOIN orders_order AS sale ON sale.id = payment.order_id
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN EXISTS (
            SELECT 1
            FROM orders_providermessage AS other
            WHERE other.provider = message.provider AND other.message_id = message.message_id AND other.id <> message.id
        ) THEN 'is stored twice'
        WHEN message.processed_at IS NOT NULL AND message.outcome = '' THEN 'was processed without an outcome'
        WHEN message.processed_at IS NULL AND NOT EXISTS (
            SELECT 1
            FROM outbox_outboxmessage AS waiting
            WHERE waiting.topic = ANY(%(topics)s::text[])
              AND waiting.key = coalesce(sale.id::text, message.id::text)
              AND waiting.body ->> 'message' = message.id::text
              AND waiting.done_at IS NULL
              AND waiting.dead_at IS NULL
        ) THEN 'will never be processed: the outbox has no message for it'
        WHEN message.processed_at IS NULL
         AND message.received_at < clock_timestamp() - make_interval(mins => %(minutes_max)s)
          THEN 'has been waiting to be processed since ' || message.received_at
    END AS wrong
) AS checked
WHERE message.id > %(after)s
  AND message.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND checked.wrong IS NOT NULL
