-- Updates the planner's statistics for a new event's inventory: otherwise it would sort all free seats.
ANALYZE reservations_seatinventory (section_id, event_id, status, rank, reservation_id)
