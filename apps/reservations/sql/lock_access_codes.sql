-- Locks those of these access codes that have limits, in id order.
SELECT code.id
FROM reservations_accesscode AS code
WHERE (code.event_id, code.code) IN (
    SELECT event_id, word FROM unnest(%(event_ids)s::bigint[], %(words)s::text[]) AS asked (event_id, word)
)
  AND (code.uses_max IS NOT NULL OR code.uses_per_buyer_max IS NOT NULL)
ORDER BY code.id
FOR NO KEY UPDATE OF code
