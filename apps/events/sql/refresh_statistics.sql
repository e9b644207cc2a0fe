-- Tells the planner of the rows just loaded; locks out nobody who reads or writes.
ANALYZE events_seat, events_section
