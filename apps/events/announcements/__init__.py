"""What organizers say to everybody during an on-sale: short messages, each kept in all its versions.

PostgreSQL has them first (`queries`), Redis has the newest of each event as readers get them (`redis_cache`), and may
be away at any time. A correction is a new version, and so is taking back; nothing that was said is ever changed. A
month after the event they are packed (`archive`), and still read.
"""
