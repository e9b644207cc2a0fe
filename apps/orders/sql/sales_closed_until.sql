-- The minute before which no running transaction can confirm an order any more: an order is confirmed at a time after its
-- transaction began, and all processes share this database role. Read in a statement before the one that counts: a
-- transaction that has ended by now is visible to the next statement.
SELECT date_trunc('minute', least(clock_timestamp(), min(xact_start)))
FROM pg_stat_activity
WHERE datname = current_database()
  AND pid <> pg_backend_pid()
