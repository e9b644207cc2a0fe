"""What visitors get of an event's seating plan."""
