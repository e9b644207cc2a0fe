"""Scheduled tasks of an event: the kinds that this app registers, and the pages for staff."""
