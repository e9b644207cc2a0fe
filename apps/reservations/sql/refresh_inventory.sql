-- Updates the statistics for a new event's inventory: without them, the planner would sort all free seats.
ANALYZE reservations_seatinventory (section_id, event_id, status, rank, reservation_id)
