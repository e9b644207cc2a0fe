-- Sets the keys of the codes that reopened these entries, each given once. The caller holds their locks.
UPDATE queue_queueentry AS entry
SET presale_key = given.presale_key
FROM unnest(%(entry_ids)s::uuid[], %(keys)s::bytea[]) AS given (id, presale_key)
WHERE entry.id = given.id
