-- I5: admissions with several live reservations, if one of these other than the first is in this batch.
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
