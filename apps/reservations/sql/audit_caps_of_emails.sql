-- I5: e-mail addresses of this piece with more than the event's cap. All that one has lies in one piece.
SELECT email, sum(seat_count)
FROM reservations_reservation
WHERE event_id = %(event_id)s
  AND email > %(after)s
  AND email <= %(until)s
  AND email <> ''
  AND status IN ('pending_payment', 'paying', 'confirmed')
GROUP BY email
HAVING sum(seat_count) > %(per_buyer_max)s
