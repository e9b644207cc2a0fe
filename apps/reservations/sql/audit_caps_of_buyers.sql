-- I5: buyers of this batch above the event's cap. All reservations of a buyer are in one batch.
SELECT buyer, sum(seat_count)
FROM reservations_reservation
WHERE event_id = %(event_id)s
  AND buyer > %(after)s
  AND buyer <= %(until)s
  AND status IN ('pending_payment', 'paying', 'confirmed')
GROUP BY buyer
HAVING sum(seat_count) > %(per_buyer_max)s
   AND (%(since)s::timestamptz IS NULL OR max(created_at) >= %(since)s)
