"""Form fields for values that are stored in one unit and typed in another, such as money and percentages."""
