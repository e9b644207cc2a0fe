-- I5: admissions with more than one live reservation.
SELECT entry_id, count(*)
FROM reservations_reservation
WHERE event_id = %(event_id)s AND status IN ('pending_payment', 'paying')
GROUP BY entry_id
HAVING count(*) > 1
