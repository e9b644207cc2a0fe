"""The development servers, PostgreSQL 18 and Valkey 9 from their wheels, and the demo that uses them.

No module here needs Django's settings at import time: the settings read the state file, which the demo writes first.
"""
