-- What the planner knows of the inventory is true of an event that has just come: else it would sort all that is free.
ANALYZE reservations_seatinventory (section_id, event_id, status, rank, reservation_id)
