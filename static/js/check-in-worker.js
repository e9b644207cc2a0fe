// Keeps nothing yet.
