-- The message with this latest receipt is not given out again; one that was deleted by it keeps its moment.
UPDATE orders_feedmessage
SET deleted_at = coalesce(deleted_at, clock_timestamp())
WHERE receipt = %(receipt)s AND feed_key_id = %(key)s
