-- Updates the planner's statistics of entries, which now have numbers.
ANALYZE queue_queueentry (event_id, number, status)
