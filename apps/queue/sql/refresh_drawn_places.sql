-- The planner knows the places just drawn: with figures from before it would read all of them for every chunk.
ANALYZE queue_drawnplace
