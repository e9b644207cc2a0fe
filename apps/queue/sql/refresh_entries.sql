-- The planner knows that entries have numbers now.
ANALYZE queue_queueentry (event_id, number, status)
