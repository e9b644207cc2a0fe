-- Updates the planner's statistics of drawn numbers. With old ones, each chunk would read all numbers.
ANALYZE queue_drawnplace
