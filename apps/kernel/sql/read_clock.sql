-- The moment as it is now, after the locks: now() would still say when the transaction began.
SELECT clock_timestamp()
