-- The current time, also after waiting for locks: now() would return the start of the transaction.
SELECT clock_timestamp()
