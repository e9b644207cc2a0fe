-- Whether anybody waits in this room with a number below this one.
SELECT EXISTS (
    SELECT
    FROM queue_queueentry
    WHERE event_id = %(event_id)s AND status = 'waiting' AND number < %(below)s
)
