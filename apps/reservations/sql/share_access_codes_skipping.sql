-- Locks those of these access codes without limits FOR SHARE, skipping those that are being changed.
SELECT code.id
FROM reservations_accesscode AS code
WHERE (code.event_id, code.code) IN (
    SELECT event_id, word FROM unnest(%(event_ids)s::bigint[], %(words)s::text[]) AS asked (event_id, word)
)
  AND code.uses_max IS NULL
  AND code.uses_per_buyer_max IS NULL
ORDER BY code.id
FOR SHARE OF code SKIP LOCKED
