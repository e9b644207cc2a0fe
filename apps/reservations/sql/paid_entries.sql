-- Which of these entries have bought something: their admission has served its purpose.
SELECT DISTINCT entry_id
FROM reservations_reservation
WHERE entry_id = ANY(%(entry_ids)s::uuid[]) AND status = 'confirmed'
