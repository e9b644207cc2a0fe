-- Use indexes whatever the statistics say. Those of a table that grows from a few rows to thousands a second are too old
-- until it is analyzed, and until then a prepared statement may read all of it for each batch.
SELECT set_config('enable_seqscan', 'off', false)
