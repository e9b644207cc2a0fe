-- Whether the feed has a message that has been received as often as allowed and whose last visibility time-out has passed.
SELECT EXISTS (
    SELECT
    FROM feeds_message
    WHERE feed_id = %(feed)s AND state = 'ready' AND receives_left = 0 AND visible_at <= (SELECT clock_timestamp())
)
