-- The current time, also after waiting for locks, and the id of this transaction.
SELECT clock_timestamp(), pg_current_xact_id()::text::bigint
