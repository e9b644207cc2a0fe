-- Updates the planner's statistics after a bulk load; blocks neither readers nor writers.
ANALYZE events_seat, events_section
