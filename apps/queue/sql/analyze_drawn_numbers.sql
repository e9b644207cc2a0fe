-- Updates the planner's statistics of drawn numbers: with old ones it would read all of them for every chunk.
ANALYZE queue_drawnplace
