-- Delete the feed message with this latest receipt. Deleting it again keeps its first time.
UPDATE orders_feedmessage
SET deleted_at = coalesce(deleted_at, clock_timestamp())
WHERE receipt = %(receipt)s AND feed_key_id = %(key)s
