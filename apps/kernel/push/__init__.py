"""Telling many at once: frames that are encoded once, listeners that are written to in turn, and a hub between them.

Nothing in here knows what is told. Frames are states, the newer of which makes the older needless, so whoever reads
slowly is told the newest and never a backlog.
"""
