"""The development servers, PostgreSQL 18 and Valkey 9 from their wheels, and the demo that uses them.

No module here imports Django at import time: the settings use `ticketing.demo_state` before Django is set up.
"""
