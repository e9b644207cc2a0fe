-- Keeps those of these access codes as they are whose uses nobody counts, in id order: no hold waits for another one,
-- and who is about to limit them waits for all.
SELECT code.id
FROM reservations_accesscode AS code
WHERE (code.event_id, code.code) IN (
    SELECT event_id, word FROM unnest(%(event_ids)s::bigint[], %(words)s::text[]) AS asked (event_id, word)
)
  AND code.uses_max IS NULL
  AND code.uses_per_buyer_max IS NULL
ORDER BY code.id
FOR SHARE OF code
