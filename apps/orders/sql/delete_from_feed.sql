-- Mark the feed message with this latest receipt handle as deleted. A repetition keeps the time of the first deletion.
UPDATE orders_feedmessage
SET deleted_at = coalesce(deleted_at, clock_timestamp())
WHERE receipt = %(receipt)s AND feed_key_id = %(key)s
