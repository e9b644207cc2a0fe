-- Locks these buyers' cap rows in id order, skipping locked ones.
SELECT cap.id, cap.event_id, cap.buyer
FROM reservations_purchasecap AS cap
WHERE (cap.event_id, cap.buyer) IN (
    SELECT event_id, buyer FROM unnest(%(event_ids)s::bigint[], %(buyers)s::text[]) AS asked (event_id, buyer)
)
ORDER BY cap.id
FOR NO KEY UPDATE OF cap SKIP LOCKED
