"""What staff do to the inventory while it is on sale."""
