"""Announcements: short messages from the organizer to all visitors of an event, with every version kept.

Versions are written to PostgreSQL first (`queries`). Redis caches the current feed of each event (`redis_cache`) and
may be unavailable at any time. A correction or retraction adds a version; existing versions never change. A month after
the event, all versions are compressed into an archive (`archive`), which the history still reads.
"""
