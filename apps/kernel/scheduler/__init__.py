"""The scheduler: tasks that run once at a minute, or by a cron expression in a time zone. Each run happens once.

A picker looks two minutes ahead and writes a row for each run, with the task marked in the same transaction. When the
minute has come, the run gets its turn, and an executor starts it. The executor runs the task's handler and ends the run
in one transaction.
"""
