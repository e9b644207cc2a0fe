-- Whether an event has a subscriber: an active webhook endpoint or a feed key.
SELECT
    EXISTS (
        SELECT FROM orders_webhookendpoint WHERE is_active AND (event_id IS NULL OR event_id = %(event_id)s)
    )
    OR EXISTS (
        SELECT FROM orders_feedkey WHERE revoked_at IS NULL AND (event_id IS NULL OR event_id = %(event_id)s)
    )
