"""Changes to the inventory by staff, also while it is on sale."""
