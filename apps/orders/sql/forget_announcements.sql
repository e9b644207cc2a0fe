-- Delete up to %(limit)s messages to organizers created before a given time, with their deliveries and feed entries.
WITH old AS MATERIALIZED (
    SELECT id
    FROM orders_organizermessage
    WHERE created_at < %(before)s
    ORDER BY created_at
    LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
),
deliveries AS (
    DELETE FROM orders_webhookdelivery WHERE message_id IN (SELECT id FROM old)
),
feed_entries AS (
    DELETE FROM orders_feedmessage WHERE message_id IN (SELECT id FROM old)
)
DELETE FROM orders_organizermessage WHERE id IN (SELECT id FROM old)
