-- Sets the time until which each entry's live reservation occupies its slot. The caller holds the rows' locks.
UPDATE queue_queueentry AS entry
SET busy_until = given.busy_until
FROM unnest(%(entry_ids)s::uuid[], %(moments)s::timestamptz[]) AS given (id, busy_until)
WHERE entry.id = given.id
