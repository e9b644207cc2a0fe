-- I5: buyers of this piece with more than the event's cap. All that one has lies in one piece.
SELECT buyer, sum(seat_count)
FROM reservations_reservation
WHERE event_id = %(event_id)s
  AND buyer > %(after)s
  AND buyer <= %(until)s
  AND status IN ('pending_payment', 'paying', 'confirmed')
GROUP BY buyer
HAVING sum(seat_count) > %(per_buyer_max)s
