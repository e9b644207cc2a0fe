-- The cluster's identifier, the transaction below which all have ended, and the first id that is not assigned yet. Ids
-- are compared within one cluster only: a restored database counts anew.
SELECT (SELECT system_identifier FROM pg_control_system()),
       pg_snapshot_xmin(snapshot)::text::bigint,
       pg_snapshot_xmax(snapshot)::text::bigint
FROM pg_current_snapshot() AS snapshot
