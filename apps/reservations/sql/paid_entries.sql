-- Which of these entries have a confirmed reservation, which has used their admission.
SELECT DISTINCT entry_id
FROM reservations_reservation
WHERE entry_id = ANY(%(entry_ids)s::uuid[]) AND status = 'confirmed'
