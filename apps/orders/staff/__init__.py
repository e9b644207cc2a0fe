"""Staff pages for orders."""
