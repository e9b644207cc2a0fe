-- Whether an event has a subscriber: an active webhook endpoint or a feed key for messages about orders, of the event,
-- of its organizer or of the whole site.
WITH event AS (SELECT id, organizer_id FROM events_event WHERE id = %(event_id)s)
SELECT
    EXISTS (
        SELECT FROM orders_webhookendpoint AS endpoint, event
        WHERE endpoint.is_active AND COALESCE(endpoint.event_id, event.id) = event.id
          AND COALESCE(endpoint.organizer_id, event.organizer_id) = event.organizer_id
    )
    OR EXISTS (
        SELECT FROM orders_feedkey AS feed_key, event
        WHERE feed_key.revoked_at IS NULL
          AND feed_key.scopes @> '["orders:receive"]'::jsonb
          AND COALESCE(feed_key.event_id, event.id) = event.id
          AND COALESCE(feed_key.organizer_id, event.organizer_id) = event.organizer_id
    )
