-- I5: admissions with more than one live reservation, if any but the first of them is in this piece.
SELECT DISTINCT mine.event_id, mine.entry_id, others.count
FROM reservations_reservation AS mine
CROSS JOIN LATERAL (
    SELECT count(*) AS count, count(*) FILTER (WHERE other.id < mine.id) AS before
    FROM reservations_reservation AS other
    WHERE other.entry_id = mine.entry_id AND other.status IN ('pending_payment', 'paying')
) AS others
WHERE mine.id > %(after)s
  AND mine.id <= %(until)s
  AND mine.status IN ('pending_payment', 'paying')
  AND (%(event_id)s::bigint IS NULL OR mine.event_id = %(event_id)s)
  AND others.before > 0
