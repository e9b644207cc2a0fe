"""The demo events: a theatre, an arena and a festival rush, with generated seating plans and posters."""
