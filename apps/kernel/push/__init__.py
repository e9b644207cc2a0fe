"""Live updates: a hub of listeners in each process, and the channel layer that connects processes.

This package does not depend on what the frames contain. A frame is a state, and a newer one replaces an older one of
the same key, so a slow reader receives the newest state and never a backlog.
"""
