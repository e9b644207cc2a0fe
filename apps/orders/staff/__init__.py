"""What only staff does with orders, and is told."""
