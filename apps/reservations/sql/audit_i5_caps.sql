-- I5: buyers and e-mail addresses with more than the event's cap.
SELECT 'buyer', buyer, sum(seat_count)
FROM reservations_reservation
WHERE event_id = %(event_id)s AND status IN ('pending_payment', 'paying', 'confirmed')
GROUP BY buyer
HAVING sum(seat_count) > %(per_buyer_max)s
UNION ALL
SELECT 'e-mail', email, sum(seat_count)
FROM reservations_reservation
WHERE event_id = %(event_id)s AND status IN ('pending_payment', 'paying', 'confirmed') AND email <> ''
GROUP BY email
HAVING sum(seat_count) > %(per_buyer_max)s
