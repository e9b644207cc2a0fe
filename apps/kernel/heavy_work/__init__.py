"""Limits of work that occupies a process, a thread or the database for long."""
