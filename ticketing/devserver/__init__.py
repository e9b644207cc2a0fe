"""PostgreSQL 18 and Valkey 9 from their wheels, started and stopped by our own code, and the demo that uses them.

Nothing here imports Django at module level: settings ask `ticketing.demo_state` before Django exists.
"""
