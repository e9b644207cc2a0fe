-- The id of this transaction, by which a snapshot can tell later whether it includes what the transaction committed.
SELECT pg_current_xact_id()::text::bigint
