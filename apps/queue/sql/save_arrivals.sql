-- Saves the changes that arrivals made to these entries, each given once. The caller holds their locks.
UPDATE queue_queueentry AS entry
SET status = given.status, admission_expires_at = given.admission_expires_at, ended_at = given.ended_at
FROM unnest(
    %(entry_ids)s::uuid[], %(statuses)s::text[], %(admissions)s::timestamptz[], %(ends)s::timestamptz[]
) AS given (id, status, admission_expires_at, ended_at)
WHERE entry.id = given.id
