"""What staff see of events beside the admin's own pages."""
