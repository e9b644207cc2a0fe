-- Which of these entries have a confirmed reservation, so that their admission has been used.
SELECT DISTINCT entry_id
FROM reservations_reservation
WHERE entry_id = ANY(%(entry_ids)s::uuid[]) AND status = 'confirmed'
